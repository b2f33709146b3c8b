#include "kernels/highway_targets.h"
#include "kernels/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nibbles.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/grid_coder-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The number of codes that are packed or unpacked at a time, through a buffer of one byte per code.
constexpr std::size_t kPiece = 512;

// bytes[i] = codes[2i] | codes[2i + 1] << 4.
HWY_INLINE void Pack(const std::uint8_t* HWY_RESTRICT codes, std::size_t count, std::uint8_t* HWY_RESTRICT bytes) {
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

HWY_INLINE void Unpack(const std::uint8_t* HWY_RESTRICT bytes, std::size_t count, std::uint8_t* HWY_RESTRICT codes) {
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

template <class Coder>
void EncodePieces(const Coder& coder, const float* values, std::size_t count, std::uint8_t* bytes) {
  HWY_ALIGN std::uint8_t codes[kPiece];
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t n = HWY_MIN(kPiece, count - begin);
    EncodeAll(coder, values + begin, n, begin, codes);
    if (n % 2 != 0) codes[n] = 0;
    Pack(codes, (n + 1) / 2, bytes + begin / 2);
  }
}

template <bool kAccumulate>
void DecodePieces(const GridDecoder& decoder, const std::uint8_t* bytes, std::size_t count, float* values) {
  HWY_ALIGN std::uint8_t codes[kPiece];
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t n = HWY_MIN(kPiece, count - begin);
    Unpack(bytes + begin / 2, (n + 1) / 2, codes);
    DecodeAll<kAccumulate>(decoder, codes, n, values + begin);
  }
}

void EncodeNibblesHere(const Grid& grid, const float* values, std::size_t count, const RandomStream* random,
                       std::uint8_t* bytes) {
  if (random != nullptr) return EncodePieces(RandomGridEncoder(grid, *random), values, count, bytes);
  EncodePieces(GridEncoder(grid), values, count, bytes);
}

void DecodeNibblesHere(const GridValues& levels, const std::uint8_t* bytes, std::size_t count, bool accumulate,
                       float* values) {
  if (accumulate) return DecodePieces<true>({levels}, bytes, count, values);
  DecodePieces<false>({levels}, bytes, count, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(EncodeNibblesHere);
HWY_EXPORT(DecodeNibblesHere);

void EncodeNibbles(const Grid& grid, absl::Span<const float> values, const std::optional<RandomStream>& random,
                   std::uint8_t* bytes) {
  HWY_DYNAMIC_DISPATCH(EncodeNibblesHere)
  (grid, values.data(), values.size(), random.has_value() ? &*random : nullptr, bytes);
}

void DecodeNibbles(const GridValues& levels, const std::uint8_t* bytes, bool accumulate, absl::Span<float> values) {
  HWY_DYNAMIC_DISPATCH(DecodeNibblesHere)(levels, bytes, values.size(), accumulate, values.data());
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
