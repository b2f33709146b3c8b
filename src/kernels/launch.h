// What makes a table of device kernels: a function for every entry, which chooses the kernel by the dtypes and the
// operator, and leaves the launch to a Launcher. A Launcher is made from a stream and has
//
//   absl::Status EnqueueOctets(octets, count)         runs octets.At over `count` elements
//   absl::Status EnqueueUnits<Coder, Runner>(batch)  runs RunUnit over the units of the batch
//
// The functions are defined in launch_*-inl.h, which a source includes for those that it instantiates.
#ifndef TUTTI_KERNELS_LAUNCH_H_
#define TUTTI_KERNELS_LAUNCH_H_

#include "kernels/device_kernels.h"

namespace tutti::kernels {

template <class Launcher>
absl::Status LaunchReduce(Stream stream, DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                          absl::Span<const void* const> srcs, std::int64_t count);
template <class Launcher>
absl::Status LaunchReduceAndRound(Stream stream, DType dst_type, ReduceOp op, std::int32_t divisor,
                                  absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t count);
template <class Launcher>
absl::Status LaunchConvert(Stream stream, DType dst_type, void* dst, DType src_type, const void* src,
                           std::int64_t count);
template <class Launcher>
absl::Status LaunchDivide(Stream stream, DType dtype, void* dst, const void* src, std::int32_t divisor,
                          std::int64_t count);
template <class Launcher>
absl::Status LaunchMultiply(Stream stream, DType dtype, void* dst, const void* src, double factor, std::int64_t count);
template <class Launcher>
absl::Status LaunchCombine(Stream stream, DType dtype, void* dst, absl::Span<const void* const> srcs,
                           const Coefficient* coefficients, std::int64_t count, Results results);
template <class Launcher>
absl::Status LaunchEncode(Stream stream, absl::Span<const EncodeJob> jobs);
template <class Launcher>
absl::Status LaunchDecode(Stream stream, absl::Span<const DecodeJob> jobs, std::uint32_t* fault);
template <class Launcher>
absl::Status LaunchRecode(Stream stream, const EncodeJob& encode, float* sum,
                          absl::Span<const std::uint8_t* const> versions, std::int32_t divisor, std::uint32_t* fault);
template <class Launcher>
absl::Status LaunchBlend(Stream stream, DType dtype, void* gradient, const void* weights, const float* m,
                         std::int64_t count, const AdamFactors& factors);
template <class Launcher>
absl::Status LaunchAdam(Stream stream, DType dtype, void* weights, const void* gradient, float* m, float* v,
                        std::int64_t count, const AdamFactors& factors);
template <class Launcher>
absl::Status LaunchFrozenAdam(Stream stream, DType dtype, void* weights, const void* momentum, float* m, const float* v,
                              std::int64_t count, const AdamFactors& factors);

template <class Launcher>
inline constexpr DeviceKernels kKernelsOf = {
    .reduce = LaunchReduce<Launcher>,
    .reduce_and_round = LaunchReduceAndRound<Launcher>,
    .convert = LaunchConvert<Launcher>,
    .divide = LaunchDivide<Launcher>,
    .multiply = LaunchMultiply<Launcher>,
    .combine = LaunchCombine<Launcher>,
    .encode = LaunchEncode<Launcher>,
    .decode = LaunchDecode<Launcher>,
    .recode = LaunchRecode<Launcher>,
    .blend_into_momentum = LaunchBlend<Launcher>,
    .adam_step = LaunchAdam<Launcher>,
    .frozen_adam_step = LaunchFrozenAdam<Launcher>,
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_LAUNCH_H_
