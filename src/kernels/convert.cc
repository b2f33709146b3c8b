#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/convert_element.h"
#include "kernels/convert_floating.h"
#include "kernels/reduce.h"

namespace tutti::kernels {
namespace {

template <typename To, typename From>
void ConvertLoop(void* dst, const void* src, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    static_cast<To*>(dst)[i] = ConvertElement<To>(static_cast<const From*>(src)[i]);
  }
}

template <typename To>
void ConvertTo(void* dst, DType src_type, const void* src, std::int64_t count) {
  switch (src_type) {
    case DType::kF32:
      return ConvertLoop<To, float>(dst, src, count);
    case DType::kF64:
      return ConvertLoop<To, double>(dst, src, count);
    case DType::kF16:
      return ConvertLoop<To, Float16>(dst, src, count);
    case DType::kBF16:
      return ConvertLoop<To, BFloat16>(dst, src, count);
    case DType::kI8:
      return ConvertLoop<To, std::int8_t>(dst, src, count);
    case DType::kU8:
      return ConvertLoop<To, std::uint8_t>(dst, src, count);
    case DType::kI32:
      return ConvertLoop<To, std::int32_t>(dst, src, count);
    case DType::kI64:
      return ConvertLoop<To, std::int64_t>(dst, src, count);
    case DType::kI16:
      return ConvertLoop<To, std::int16_t>(dst, src, count);
    case DType::kU16:
      return ConvertLoop<To, std::uint16_t>(dst, src, count);
    case DType::kU32:
      return ConvertLoop<To, std::uint32_t>(dst, src, count);
    case DType::kU64:
      return ConvertLoop<To, std::uint64_t>(dst, src, count);
    default:
      return;  // refused by the contract of Convert
  }
}

// A long memcpy is `rep movsb`, which some processors run at a seventeenth of its speed where the destination lies less
// than a vector behind the source, modulo a page: a long buffer of malloc begins 16 bytes behind a page. There the copy
// is made of short memcpys, which are loops of vectors.
void CopyBytes(void* dst, const void* src, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kShort = 2048;
  const std::size_t ahead = (reinterpret_cast<std::uintptr_t>(dst) - reinterpret_cast<std::uintptr_t>(src)) % kPage;
  const std::size_t piece = ahead > 0 && ahead < 64 ? kShort : bytes;
  for (std::size_t at = 0; at < bytes; at += piece) {
    std::memcpy(static_cast<std::byte*>(dst) + at, static_cast<const std::byte*>(src) + at,
                std::min(piece, bytes - at));
  }
}

void Copy(DType dtype, void* dst, const void* src, std::int64_t count, Stores stores) {
  if (count == 0 || dst == src) return;
  if (stores == Stores::kStreaming) return CopyStreaming(dtype, dst, src, count);
  CopyBytes(dst, src, static_cast<std::size_t>(count * SizeOf(dtype)));
}

}  // namespace

void Convert(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count, Stores stores) {
  if (dst_type == src_type) return Copy(dst_type, dst, src, count, stores);
  if (IsFloatingConversion(dst_type, src_type)) {
    return ConvertFloating(dst_type, dst, src_type, src, count, stores);
  }
  switch (dst_type) {
    case DType::kF32:
      return ConvertTo<float>(dst, src_type, src, count);
    case DType::kF64:
      return ConvertTo<double>(dst, src_type, src, count);
    case DType::kF16:
      return ConvertTo<Float16>(dst, src_type, src, count);
    case DType::kBF16:
      return ConvertTo<BFloat16>(dst, src_type, src, count);
    case DType::kI8:
      return ConvertTo<std::int8_t>(dst, src_type, src, count);
    case DType::kU8:
      return ConvertTo<std::uint8_t>(dst, src_type, src, count);
    case DType::kI32:
      return ConvertTo<std::int32_t>(dst, src_type, src, count);
    case DType::kI64:
      return ConvertTo<std::int64_t>(dst, src_type, src, count);
    case DType::kI16:
      return ConvertTo<std::int16_t>(dst, src_type, src, count);
    case DType::kU16:
      return ConvertTo<std::uint16_t>(dst, src_type, src, count);
    case DType::kU32:
      return ConvertTo<std::uint32_t>(dst, src_type, src, count);
    case DType::kU64:
      return ConvertTo<std::uint64_t>(dst, src_type, src, count);
    default:
      return;  // refused by the contract of Convert
  }
}

}  // namespace tutti::kernels
