// Coders that place the levels of a block in the range of its values: uint8_block, uint4_block and minmax_uint8.
#ifndef TUTTI_KERNELS_RANGE_CODERS_H_
#define TUTTI_KERNELS_RANGE_CODERS_H_

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/grid.h"
#include "kernels/minmax_levels.h"
#include "kernels/single_coders.h"

namespace tutti::kernels {

// The range of the values that a thread, or a team, has seen.
struct RunningRange {
  TUTTI_HOST_DEVICE void Add(float value) {
    min = value < min ? value : min;
    max = value > max ? value : max;
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu;
    largest = magnitude > largest ? magnitude : largest;
  }
  TUTTI_HOST_DEVICE void Add(const RunningRange& other) {
    min = other.min < min ? other.min : min;
    max = other.max > max ? other.max : max;
    largest = other.largest > largest ? other.largest : largest;
  }
  TUTTI_HOST_DEVICE bool finite() const { return largest < 0x7F800000u; }

  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  std::uint32_t largest = 0;  // the bits of the largest magnitude, NaN above infinity
};

// The two numbers of a block that decodes to NaN.
TUTTI_HOST_DEVICE inline void PoisonNumbers(float (&numbers)[2]) {
  numbers[0] = std::bit_cast<float>(0x7FC00000u);
  numbers[1] = 0.0f;
}

// Writes the codes of octet [begin, begin + n) of a block, one byte for each or, with kBits = 4, one for two.
template <int kBits>
TUTTI_HOST_DEVICE void StoreCodes(const std::uint8_t (&codes)[kOctet], std::int64_t begin, int n, std::uint8_t* code) {
  if constexpr (kBits == 8) {
    StoreElements(codes, n, code + begin);
  } else {
    std::uint8_t bytes[kOctet / 2];
    TUTTI_UNROLL
    for (int i = 0; i < kOctet / 2; ++i) bytes[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    StoreElements(bytes, (n + 1) / 2, code + begin / 2);
  }
}

template <int kBits>
TUTTI_HOST_DEVICE void LoadCodes(const std::uint8_t* code, std::int64_t begin, int n, std::uint8_t (&codes)[kOctet]) {
  if constexpr (kBits == 8) {
    LoadElements(code + begin, n, codes);
  } else {
    std::uint8_t bytes[kOctet / 2];
    LoadElements(code + begin / 2, (n + 1) / 2, bytes);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet / 2; ++i) {
      codes[2 * i] = bytes[i] & 0x0F;
      codes[2 * i + 1] = bytes[i] >> 4;
    }
  }
}

// grid.h with codes of kBits bits.
template <int kBitsOfCode>
struct GridScheme {
  static constexpr int kBits = kBitsOfCode;
  using Levels = GridValues;

  class Encoder {
   public:
    TUTTI_HOST_DEVICE Encoder(const RunningRange& range, const MessageLayout& layout, RandomStream random)
        : grid_(MakeGrid(range.min, range.max, (1 << kBits) - 1,
                         layout.stochastic ? Rounding::kStochastic : Rounding::kNearest)),
          stochastic_(layout.stochastic),
          random_(random) {}
    TUTTI_HOST_DEVICE void WriteNumbers(float (&numbers)[2]) const {
      numbers[0] = grid_.min();
      numbers[1] = grid_.step;
    }
    // The code of element `index` of the block.
    TUTTI_HOST_DEVICE std::uint8_t CodeOf(float value, std::int64_t index) const {
      if (!stochastic_) return EncodeToGrid(grid_, value);
      return EncodeToGrid(grid_, value, RandomWord(random_, static_cast<std::uint32_t>(index)));
    }

   private:
    Grid grid_;
    bool stochastic_;
    RandomStream random_;
  };

  TUTTI_HOST_DEVICE static Levels LevelsOf(const float (&numbers)[2]) { return MakeGridValues(numbers[0], numbers[1]); }
  TUTTI_HOST_DEVICE static float ValueOf(const Levels& levels, std::uint8_t code) {
    return DecodeFromGrid(levels, code);
  }
};

// minmax_levels.h.
struct MinMaxScheme {
  static constexpr int kBits = 8;
  using Levels = MinMaxLevels;

  class Encoder {
   public:
    // Adding 0 makes the sign of a zero positive; it would otherwise depend on the order of comparisons.
    TUTTI_HOST_DEVICE Encoder(const RunningRange& range, const MessageLayout& /*layout*/, RandomStream /*random*/)
        : min_(range.min + 0.0f), max_(range.max + 0.0f), levels_(MakeMinMaxLevels(min_, max_)) {}
    TUTTI_HOST_DEVICE void WriteNumbers(float (&numbers)[2]) const {
      numbers[0] = min_;
      numbers[1] = max_;
    }
    TUTTI_HOST_DEVICE std::uint8_t CodeOf(float value, std::int64_t /*index*/) const {
      return EncodeMinMaxUint8(levels_, value);
    }

   private:
    float min_;
    float max_;
    MinMaxLevels levels_;
  };

  TUTTI_HOST_DEVICE static Levels LevelsOf(const float (&numbers)[2]) {
    return MakeMinMaxLevels(numbers[0], numbers[1]);
  }
  TUTTI_HOST_DEVICE static float ValueOf(const Levels& levels, std::uint8_t code) {
    return DecodeMinMaxUint8(levels, code);
  }
};

// Encodes `values` as the block at `place`.
template <class Scheme, class Team>
TUTTI_HOST_DEVICE void EncodeRange(const Team& team, const MessageLayout& layout, const BlockPlace<std::uint8_t>& place,
                                   const ValueSource& values, std::uint64_t draw) {
  HeldOctets held;
  RunningRange range;
  held.Load(team, values, place.elements, [&range](std::int64_t /*begin*/, int n, const float(&octet)[kOctet]) {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (i < n) range.Add(octet[i]);
    }
  });
  range = team.Combine(range);
  float numbers[2];
  if (!range.finite()) {
    ForEachOctet(team, place.elements, [&place](std::int64_t begin, int n) {
      const std::uint8_t codes[kOctet] = {};
      StoreCodes<Scheme::kBits>(codes, begin, n, place.code);
    });
    PoisonNumbers(numbers);
  } else {
    const RandomStream random = MakeRandomStream(layout.seed, draw, static_cast<std::uint64_t>(place.index));
    const typename Scheme::Encoder encoder(range, layout, random);
    held.Revisit(team, values, place.elements, [&](std::int64_t begin, int n, const float(&octet)[kOctet]) {
      std::uint8_t codes[kOctet];
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) codes[i] = i < n ? encoder.CodeOf(octet[i], begin + i) : std::uint8_t{0};
      StoreCodes<Scheme::kBits>(codes, begin, n, place.code);
    });
    encoder.WriteNumbers(numbers);
  }
  if (team.rank() == 0) StoreElements(numbers, 2, place.numbers);
}

template <class Scheme>
struct RangeCoder : AloneCoder<RangeCoder<Scheme>> {
  using Levels = typename Scheme::Levels;
  using Scratch = typename AloneCoder<RangeCoder<Scheme>>::Scratch;

  TUTTI_HOST_DEVICE static Levels LevelsOf(const BlockPlace<const std::uint8_t>& place) {
    float numbers[2];
    LoadElements(place.numbers, 2, numbers);
    return Scheme::LevelsOf(numbers);
  }
  TUTTI_HOST_DEVICE static void DecodeOctet(const Levels& levels, const std::uint8_t* code, std::int64_t begin, int n,
                                            float (&octet)[kOctet]) {
    std::uint8_t codes[kOctet];
    LoadCodes<Scheme::kBits>(code, begin, n, codes);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = Scheme::ValueOf(levels, codes[i]);
  }

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& /*scratch*/, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t draw) {
    EncodeRange<Scheme>(team, layout, place, values, draw);
  }
};

using Grid8Coder = RangeCoder<GridScheme<8>>;
using Grid4Coder = RangeCoder<GridScheme<4>>;
using MinMax8Coder = RangeCoder<MinMaxScheme>;

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_RANGE_CODERS_H_
