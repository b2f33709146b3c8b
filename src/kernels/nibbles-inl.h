// Codes of 4 bits, two to a byte, the first in its lower half. Included once per instruction set.
#if defined(TUTTI_KERNELS_NIBBLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_NIBBLES_INL_H_
#undef TUTTI_KERNELS_NIBBLES_INL_H_
#else
#define TUTTI_KERNELS_NIBBLES_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// bytes[i] = codes[2i] | codes[2i + 1] << 4.
HWY_INLINE void PackNibbles(const std::uint8_t* HWY_RESTRICT codes, std::size_t count,
                            std::uint8_t* HWY_RESTRICT bytes) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint16_t> du16;
  const hn::Repartition<std::uint8_t, decltype(du16)> du8;
  const hn::Rebind<std::uint8_t, decltype(du16)> half;
  for (; i + hn::Lanes(du16) <= count; i += hn::Lanes(du16)) {
    const auto pair = hn::BitCast(du16, hn::LoadU(du8, codes + 2 * i));
    const auto packed = hn::And(hn::Or(pair, hn::ShiftRight<4>(pair)), hn::Set(du16, 0xFF));
    hn::StoreU(hn::TruncateTo(half, packed), half, bytes + i);
  }
#endif
  for (; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
}

HWY_INLINE void UnpackNibbles(const std::uint8_t* HWY_RESTRICT bytes, std::size_t count,
                              std::uint8_t* HWY_RESTRICT codes) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<std::uint16_t> du16;
  const hn::Repartition<std::uint8_t, decltype(du16)> du8;
  const hn::Rebind<std::uint8_t, decltype(du16)> half;
  for (; i + hn::Lanes(du16) <= count; i += hn::Lanes(du16)) {
    const auto packed = hn::PromoteTo(du16, hn::LoadU(half, bytes + i));
    const auto pair = hn::And(hn::Or(packed, hn::ShiftLeft<4>(packed)), hn::Set(du16, 0x0F0F));
    hn::StoreU(hn::BitCast(du8, pair), du8, codes + 2 * i);
  }
#endif
  for (; i < count; ++i) {
    codes[2 * i] = bytes[i] & 0x0F;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_NIBBLES_INL_H_
