#include "kernels/range_blocks.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "kernels/hadamard.h"
#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/range_blocks.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/finite_range-inl.h"
#include "kernels/hadamard-inl.h"
#include "kernels/nibbles-inl.h"
#include "kernels/range_schemes-inl.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The codes of kBits bits that are made or used at a time when they are not bytes in memory.
constexpr std::size_t kPiece = 512;

template <int kBits>
constexpr std::size_t CodeBytes(std::size_t elements) {
  return kBits == 8 ? elements : (elements + 1) / 2;
}

template <int kBits, class Coder, class Ahead>
HWY_INLINE void EncodeCodes(const Coder& coder, const float* values, std::size_t count, const Ahead& ahead,
                            std::uint8_t* code) {
  if constexpr (kBits == 8) {
    EncodeAll(coder, values, count, 0, ahead, code);
  } else {
    HWY_ALIGN std::uint8_t codes[kPiece];
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t n = HWY_MIN(kPiece, count - begin);
      EncodeAll(coder, values + begin, n, begin, ahead, codes);
      if (n % 2 != 0) codes[n] = 0;
      PackNibbles(codes, (n + 1) / 2, code + begin / 2);
    }
  }
}

template <int kBits, bool kAccumulate, class Coder, class AheadOfCodes, class AheadOfValues>
HWY_INLINE void DecodeCodes(const Coder& coder, const std::uint8_t* code, std::size_t count,
                            const AheadOfCodes& ahead_of_codes, const AheadOfValues& ahead_of_values, float* values) {
  if constexpr (kBits == 8) {
    DecodeAll<kAccumulate>(coder, code, count, ahead_of_codes, ahead_of_values, values);
  } else {
    HWY_ALIGN std::uint8_t codes[kPiece];
    for (std::size_t begin = 0; begin < count; begin += kPiece) {
      const std::size_t n = HWY_MIN(kPiece, count - begin);
      ahead_of_codes.template At<kPiece / 2>(code + begin / 2);
      UnpackNibbles(code + begin / 2, (n + 1) / 2, codes);
      DecodeAll<kAccumulate>(coder, codes, n, NothingAhead(), ahead_of_values, values + begin);
    }
  }
}

// Small blocks whose levels are placed before any of the blocks is encoded, because to place levels takes many steps of
// which each waits for the one before: those of several blocks overlap.
constexpr std::size_t kMaxBlocks = 32;
constexpr std::int64_t kCachedElements = 1024;  // stay in the first cache between the two passes over them

std::int64_t BlocksAtOnce(std::int64_t block) {
  return std::clamp<std::int64_t>(kCachedElements / block, 1, kMaxBlocks);
}

// The values of the blocks, where they lie.
struct PlainValues {
  HWY_INLINE const float* Prepare(std::int64_t begin, std::size_t /*count*/, std::int64_t /*slot*/) const {
    return values + begin;
  }
  HWY_INLINE const ReadAhead<Access::kRead>& Ahead() const { return ahead; }

  const float* values;
  ReadAhead<Access::kRead> ahead;
};

// The values of the blocks after their rotation, in `scratch`.
struct RotatedValues {
  HWY_INLINE const float* Prepare(std::int64_t begin, std::size_t count, std::int64_t slot) const {
    RotateThere(rotation.signs(), values + begin, count, ahead, scratch + slot);
    return scratch + slot;
  }
  static HWY_INLINE NothingAhead Ahead() { return {}; }

  const Rotation& rotation;
  const float* values;
  ReadAhead<Access::kRead> ahead;
  float* scratch;
};

// Every element of a small block is read from memory once: the second pass over a block finds the block in the cache.
template <class Scheme, class Values>
HWY_FLATTEN void EncodeBlocks(const Scheme& scheme, const MessageLayout& layout, const Values& values,
                              std::uint8_t* message) {
  typename Scheme::Levels levels[kMaxBlocks];
  const float* prepared[kMaxBlocks];
  const std::int64_t at_once = BlocksAtOnce(layout.block);
  for (std::int64_t first = 0; first < layout.blocks; first += at_once) {
    const std::int64_t n = std::min(at_once, layout.blocks - first);
    for (std::int64_t k = 0; k < n; ++k) {
      const BlockPlace<std::uint8_t> place = PlaceOf(layout, first + k, message);
      const auto count = static_cast<std::size_t>(place.elements);
      const float* const block = values.Prepare(place.begin, count, k * layout.block);
      const FiniteRange range = RangeOf(block, count, values.Ahead());
      float numbers[2] = {std::numeric_limits<float>::quiet_NaN(), 0.0f};  // decode to NaN, whatever the codes are
      prepared[k] = range.finite ? block : nullptr;
      if (HWY_LIKELY(range.finite)) levels[k] = Scheme::LevelsOf(range, numbers);
      std::memcpy(place.numbers, numbers, sizeof(numbers));
    }
    for (std::int64_t k = 0; k < n; ++k) {
      const BlockPlace<std::uint8_t> place = PlaceOf(layout, first + k, message);
      const auto count = static_cast<std::size_t>(place.elements);
      if (HWY_UNLIKELY(prepared[k] == nullptr)) {
        std::memset(place.code, 0, CodeBytes<Scheme::kBits>(count));
      } else if (Scheme::HasQuickEncoder(levels[k])) {
        EncodeCodes<Scheme::kBits>(scheme.QuickEncoderOf(levels[k], place.index), prepared[k], count, values.Ahead(),
                                   place.code);
      } else {
        EncodeCodes<Scheme::kBits>(scheme.EncoderOf(levels[k], place.index), prepared[k], count, values.Ahead(),
                                   place.code);
      }
    }
  }
}

template <class Scheme>
void EncodeValues(const Scheme& scheme, const MessageLayout& layout, const Rotation* rotation, const float* values,
                  std::uint8_t* message) {
  const bool stays_in_cache = layout.block <= 4 * kCachedElements;
  const std::size_t bytes = stays_in_cache ? static_cast<std::size_t>(layout.count) * sizeof(float) : 0;
  const ReadAhead<Access::kRead> ahead(values, bytes, kRangeDistance);
  if constexpr (Scheme::kBits == 4) {
    if (rotation != nullptr) {
      HWY_ALIGN float scratch[Rotation::kMaxElements];
      return EncodeBlocks(scheme, layout, RotatedValues{*rotation, values, ahead, scratch}, message);
    }
  }
  EncodeBlocks(scheme, layout, PlainValues{values, ahead}, message);
}

// The source of a rotation back: codes of one byte, as the values that they stand for.
struct DecodedCodes {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    const hn::Rebind<std::uint8_t, D> du8;
    const hn::RebindToSigned<D> di32;
    return decoder.Decode(d, hn::ConvertTo(d, hn::PromoteTo(di32, hn::LoadU(du8, codes + i))));
  }
  HWY_INLINE DecodedCodes From(std::size_t i) const { return {decoder, codes + i}; }

  GridDecoder decoder;
  const std::uint8_t* codes;
};

ReadAhead<Access::kRead> AheadOfCodes(const MessageLayout& layout, const std::uint8_t* message) {
  const std::int64_t numbers = layout.header_bytes + layout.blocks * layout.numbers_bytes;
  return {message + numbers, static_cast<std::size_t>((layout.blocks - 1) * layout.code_bytes), kCodeDistance};
}
ReadAhead<Access::kUpdate> AheadOfValues(const MessageLayout& layout, const float* values) {
  return {values, static_cast<std::size_t>(layout.count) * sizeof(float), kUpdateDistance};
}

template <class Scheme, bool kAccumulate>
HWY_FLATTEN void DecodeBlocks(const MessageLayout& layout, const std::uint8_t* message, float* values) {
  const ReadAhead<Access::kRead> ahead_of_codes = AheadOfCodes(layout, message);
  const ReadAhead<Access::kUpdate> ahead_of_values = AheadOfValues(layout, values);
  for (std::int64_t index = 0; index < layout.blocks; ++index) {
    const BlockPlace<const std::uint8_t> place = PlaceOf(layout, index, message);
    float numbers[2];
    std::memcpy(numbers, place.numbers, sizeof(numbers));
    DecodeCodes<Scheme::kBits, kAccumulate>(Scheme::DecoderOf(numbers), place.code,
                                            static_cast<std::size_t>(place.elements), ahead_of_codes, ahead_of_values,
                                            values + place.begin);
  }
}

template <bool kAccumulate>
HWY_FLATTEN void DecodeRotatedBlocks(const Rotation& rotation, const MessageLayout& layout, const std::uint8_t* message,
                                     float* values) {
  const ReadAhead<Access::kUpdate> ahead_of_values = AheadOfValues(layout, values);
  HWY_ALIGN std::uint8_t codes[Rotation::kMaxElements];
  HWY_ALIGN float scratch[Rotation::kMaxElements];
  for (std::int64_t index = 0; index < layout.blocks; ++index) {
    const BlockPlace<const std::uint8_t> place = PlaceOf(layout, index, message);
    const auto count = static_cast<std::size_t>(place.elements);
    float numbers[2];
    std::memcpy(numbers, place.numbers, sizeof(numbers));
    UnpackNibbles(place.code, (count + 1) / 2, codes);
    const DecodedCodes source{{MakeGridValues(numbers[0], numbers[1])}, codes};
    RotateBack<kAccumulate>(rotation.signs(), source, count, ahead_of_values, scratch, values + place.begin);
  }
}

template <int kBits>
void EncodeOnGrid(const MessageLayout& layout, const Rotation* rotation, const float* values, std::uint64_t draw,
                  std::uint8_t* message) {
  if (layout.stochastic) {
    return EncodeValues(GridScheme<kBits, true>{layout.seed, draw}, layout, rotation, values, message);
  }
  EncodeValues(GridScheme<kBits, false>(), layout, rotation, values, message);
}

void EncodeRangesHere(const MessageLayout& layout, const Rotation* rotation, const float* values, std::uint64_t draw,
                      std::uint8_t* message) {
  if (layout.coder == Coder::kMinMax8) return EncodeValues(MinMaxScheme(), layout, rotation, values, message);
  if (layout.coder == Coder::kGrid8) return EncodeOnGrid<8>(layout, rotation, values, draw, message);
  EncodeOnGrid<4>(layout, rotation, values, draw, message);
}

template <bool kAccumulate>
void DecodeAllBlocks(const MessageLayout& layout, const Rotation* rotation, const std::uint8_t* message,
                     float* values) {
  if (layout.coder == Coder::kMinMax8) return DecodeBlocks<MinMaxScheme, kAccumulate>(layout, message, values);
  if (layout.coder == Coder::kGrid8) return DecodeBlocks<GridScheme<8, false>, kAccumulate>(layout, message, values);
  if (rotation != nullptr) return DecodeRotatedBlocks<kAccumulate>(*rotation, layout, message, values);
  DecodeBlocks<GridScheme<4, false>, kAccumulate>(layout, message, values);
}

void DecodeRangesHere(const MessageLayout& layout, const Rotation* rotation, const std::uint8_t* message,
                      bool accumulate, float* values) {
  if (accumulate) return DecodeAllBlocks<true>(layout, rotation, message, values);
  DecodeAllBlocks<false>(layout, rotation, message, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(EncodeRangesHere);
HWY_EXPORT(DecodeRangesHere);

std::optional<Rotation> RotationOf(const MessageLayout& layout) {
  if (layout.coder != Coder::kRotatedGrid4) return std::nullopt;
  return Rotation(layout.seed, static_cast<std::size_t>(layout.block));
}

}  // namespace

void EncodeRangeBlocks(const MessageLayout& layout, const float* values, std::uint64_t draw, std::uint8_t* message) {
  const std::optional<Rotation> rotation = RotationOf(layout);
  HWY_DYNAMIC_DISPATCH(EncodeRangesHere)(layout, rotation.has_value() ? &*rotation : nullptr, values, draw, message);
}

void DecodeRangeBlocks(const MessageLayout& layout, const std::uint8_t* message, bool accumulate, float* values) {
  const std::optional<Rotation> rotation = RotationOf(layout);
  HWY_DYNAMIC_DISPATCH(DecodeRangesHere)
  (layout, rotation.has_value() ? &*rotation : nullptr, message, accumulate, values);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
