#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "kernels/convert_floating.h"
#include "kernels/float16.h"
#include "kernels/reduce.h"

namespace tutti::kernels {
namespace {

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <typename T>
constexpr bool kIs16BitFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// `value` as an fp32 that, unless exact, is rounded toward zero and has its last bit set ("round to odd"), so that
// rounding the fp32 again to 16 bits gives the right result.
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  const float truncated = away ? std::nextafter(nearest, 0.0f) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1u);
}

double RoundToOdd(std::int64_t value) {
  constexpr std::int64_t kLowBits = (1 << 11) - 1;  // at most these bits do not fit into the 53 bits of a double
  if (value >> 53 == 0 || value >> 53 == -1) return static_cast<double>(value);
  const std::int64_t sticky = (value & kLowBits) != 0 ? kLowBits + 1 : 0;
  return static_cast<double>((value & ~kLowBits) | sticky);
}

double RoundToOdd(std::uint64_t value) {
  constexpr std::uint64_t kLowBits = (1 << 11) - 1;
  if (value >> 53 == 0) return static_cast<double>(value);
  const std::uint64_t sticky = (value & kLowBits) != 0 ? kLowBits + 1 : 0;
  return static_cast<double>((value & ~kLowBits) | sticky);
}

// `value` as a double (exact but for large 64-bit integers, which are rounded to odd).
template <typename From>
double Widen(From value) {
  if constexpr (std::is_same_v<From, Float16>) {
    return static_cast<double>(FloatFromFloat16(value.bits));
  } else if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<double>(FloatFromBFloat16(value.bits));
  } else if constexpr (std::is_same_v<From, std::int64_t> || std::is_same_v<From, std::uint64_t>) {
    return RoundToOdd(value);
  } else {
    return static_cast<double>(value);
  }
}

template <typename To, typename From>
To ConvertElement(From value) {
  if constexpr (std::is_same_v<To, Float16>) {
    return {Float16FromFloat(RoundToOdd(Widen(value)))};
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return {BFloat16FromFloat(RoundToOdd(Widen(value)))};
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From>) {
    using Limits = std::numeric_limits<To>;
    if (std::cmp_less(value, Limits::min())) return Limits::min();
    return std::cmp_greater(value, Limits::max()) ? Limits::max() : static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    const double rounded = std::nearbyint(Widen(value));
    // The upper limit is a power of two, because the largest 64-bit integers are no doubles.
    const double limit = std::ldexp(1.0, std::numeric_limits<To>::digits);
    if (std::isnan(rounded)) return 0;
    if (rounded >= limit) return std::numeric_limits<To>::max();
    if (rounded < static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(rounded);
  } else if constexpr (kIs16BitFloat<From>) {
    return static_cast<To>(Widen(value));
  } else {
    return static_cast<To>(value);
  }
}

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
