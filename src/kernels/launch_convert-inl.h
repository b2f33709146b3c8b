// LaunchConvert, LaunchCombine and LaunchMultiply.
#ifndef TUTTI_KERNELS_LAUNCH_CONVERT_INL_H_
#define TUTTI_KERNELS_LAUNCH_CONVERT_INL_H_

#include <algorithm>

#include "kernels/convert_floating.h"
#include "kernels/convert_octets.h"
#include "kernels/launch.h"

namespace tutti::kernels {

template <class Launcher>
absl::Status LaunchCopy(const Launcher& launcher, DType dtype, void* dst, const void* src, std::int64_t count) {
  if (dst == src) return absl::OkStatus();
  const std::int64_t parts = IsComplex(dtype) ? 2 : 1;
  switch (SizeOf(dtype) / parts) {
    case 1:
      return launcher.EnqueueOctets(CopyOctets<std::uint8_t>{dst, src}, count);
    case 2:
      return launcher.EnqueueOctets(CopyOctets<std::uint16_t>{dst, src}, count);
    case 4:
      return launcher.EnqueueOctets(CopyOctets<std::uint32_t>{dst, src}, parts * count);
    default:
      return launcher.EnqueueOctets(CopyOctets<std::uint64_t>{dst, src}, parts * count);
  }
}

template <class From, class Launcher>
absl::Status LaunchFloatingTo(const Launcher& launcher, DType dst_type, void* dst, const void* src,
                              std::int64_t count) {
  if (dst_type == DType::kF32) {
    return launcher.EnqueueOctets(ConvertFloatingOctets<From, NativeElement<float>>{dst, src}, count);
  }
  if (dst_type == DType::kF16)
    return launcher.EnqueueOctets(ConvertFloatingOctets<From, Float16Element>{dst, src}, count);
  return launcher.EnqueueOctets(ConvertFloatingOctets<From, BFloat16Element>{dst, src}, count);
}

template <class Launcher>
absl::Status LaunchConvert(Stream stream, DType dst_type, void* dst, DType src_type, const void* src,
                           std::int64_t count) {
  const Launcher launcher(stream);
  if (dst_type == src_type) return LaunchCopy(launcher, dst_type, dst, src, count);
  if (IsFloatingConversion(dst_type, src_type)) {
    if (src_type == DType::kF32) {
      return LaunchFloatingTo<NativeElement<float>>(launcher, dst_type, dst, src, count);
    }
    if (src_type == DType::kF16) return LaunchFloatingTo<Float16Element>(launcher, dst_type, dst, src, count);
    return LaunchFloatingTo<BFloat16Element>(launcher, dst_type, dst, src, count);
  }
  switch (dst_type) {
    case DType::kF32:
      return launcher.EnqueueOctets(ConvertOctets<float>{dst, src, src_type}, count);
    case DType::kF64:
      return launcher.EnqueueOctets(ConvertOctets<double>{dst, src, src_type}, count);
    case DType::kF16:
      return launcher.EnqueueOctets(ConvertOctets<Float16>{dst, src, src_type}, count);
    case DType::kBF16:
      return launcher.EnqueueOctets(ConvertOctets<BFloat16>{dst, src, src_type}, count);
    case DType::kI8:
      return launcher.EnqueueOctets(ConvertOctets<std::int8_t>{dst, src, src_type}, count);
    case DType::kU8:
      return launcher.EnqueueOctets(ConvertOctets<std::uint8_t>{dst, src, src_type}, count);
    case DType::kI16:
      return launcher.EnqueueOctets(ConvertOctets<std::int16_t>{dst, src, src_type}, count);
    case DType::kU16:
      return launcher.EnqueueOctets(ConvertOctets<std::uint16_t>{dst, src, src_type}, count);
    case DType::kI32:
      return launcher.EnqueueOctets(ConvertOctets<std::int32_t>{dst, src, src_type}, count);
    case DType::kU32:
      return launcher.EnqueueOctets(ConvertOctets<std::uint32_t>{dst, src, src_type}, count);
    case DType::kI64:
      return launcher.EnqueueOctets(ConvertOctets<std::int64_t>{dst, src, src_type}, count);
    default:
      return launcher.EnqueueOctets(ConvertOctets<std::uint64_t>{dst, src, src_type}, count);
  }
}

template <class Format, class Launcher>
absl::Status LaunchCombineFormat(const Launcher& launcher, const OperandList& list, const Coefficient* coefficients,
                                 std::int64_t count, Results results) {
  CombineOctets<Format> octets;
  octets.list = list;
  std::copy_n(coefficients, list.num_srcs, octets.coefficients);
  octets.results = results;
  return launcher.EnqueueOctets(octets, count);
}

template <class Launcher>
absl::Status LaunchCombine(Stream stream, DType dtype, void* dst, absl::Span<const void* const> srcs,
                           const Coefficient* coefficients, std::int64_t count, Results results) {
  OperandList list;
  if (absl::Status status = ListOperands({&dst, 1}, srcs, list); !status.ok()) return status;
  const Launcher launcher(stream);
  switch (dtype) {
    case DType::kF32:
      return LaunchCombineFormat<NativeElement<float>>(launcher, list, coefficients, count, results);
    case DType::kF64:
      return LaunchCombineFormat<NativeElement<double>>(launcher, list, coefficients, count, results);
    case DType::kF16:
      return LaunchCombineFormat<Float16Element>(launcher, list, coefficients, count, results);
    default:
      return LaunchCombineFormat<BFloat16Element>(launcher, list, coefficients, count, results);
  }
}

template <class Launcher>
absl::Status LaunchMultiply(Stream stream, DType dtype, void* dst, const void* src, double factor, std::int64_t count) {
  const Coefficient coefficient = {.factor = factor};
  return LaunchCombine<Launcher>(stream, PartOf(dtype), dst, {&src, 1}, &coefficient,
                                 IsComplex(dtype) ? 2 * count : count, Results::kAll);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_LAUNCH_CONVERT_INL_H_
