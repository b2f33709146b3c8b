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

// The range of the values that a thread, or a team, has seen. Which of two zeros is the smaller one is not said.
struct RunningRange {
  TUTTI_HOST_DEVICE void Add(float value) {
#ifdef __CUDA_ARCH__
    min = fminf(min, value);
    max = fmaxf(max, value);
#else
    min = value < min ? value : min;
    max = value > max ? value : max;
#endif
    nothing = PlusExactProduct(nothing, value, 0.0f);
  }
  TUTTI_HOST_DEVICE void AddOctet(const float (&octet)[kOctet], int n) {
    if (n == kOctet) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) Add(octet[i]);
    } else {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        if (i < n) Add(octet[i]);
      }
    }
  }
  TUTTI_HOST_DEVICE void Add(const RunningRange& other) {
    min = other.min < min ? other.min : min;
    max = other.max > max ? other.max : max;
    nothing += other.nothing;
  }
  TUTTI_HOST_DEVICE bool finite() const { return IsFinite(nothing); }

  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  float nothing = 0;  // the sum of the values times 0, which is NaN when one is not finite
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

// The code of an octet, of which each element has kBits bits.
template <int kBits>
struct PackedCodes {
  TUTTI_HOST_DEVICE void Load(const std::uint8_t* code, std::int64_t begin, int n) {
    LoadElements(code + begin * kBits / 8, (n * kBits + 7) / 8, bytes);
  }
  TUTTI_HOST_DEVICE std::uint8_t At(int i) const {
    if constexpr (kBits == 8) return bytes[i];
    return i % 2 == 0 ? bytes[i / 2] & 0x0F : bytes[i / 2] >> 4;
  }

  std::uint8_t bytes[kOctet * kBits / 8];
};

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
          quick_(grid_),
          stochastic_(layout.stochastic),
          random_(random) {}
    TUTTI_HOST_DEVICE void WriteNumbers(float (&numbers)[2]) const {
      numbers[0] = grid_.min();
      numbers[1] = grid_.step;
    }
    // Calls write(code_of), where code_of(value, index) is the code of element `index` of the block.
    template <class Write>
    TUTTI_HOST_DEVICE void WithCodes(const Write& write) const {
      const auto word = [this](std::int64_t index) { return RandomWord(random_, static_cast<std::uint32_t>(index)); };
      if (stochastic_ && quick_.serves_at_random()) {
        write(
            [&](float value, std::int64_t index) { return CodeAtRandom(grid_, quick_.Of(grid_, value), word(index)); });
      } else if (stochastic_) {
        write([&](float value, std::int64_t index) { return EncodeToGrid(grid_, value, word(index)); });
      } else if (quick_.serves()) {
        write([&](float value, std::int64_t /*index*/) { return CodeOf(grid_, quick_.Of(grid_, value)); });
      } else {
        write([&](float value, std::int64_t /*index*/) { return EncodeToGrid(grid_, value); });
      }
    }

   private:
    Grid grid_;
    QuickLevels quick_;
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
    template <class Write>
    TUTTI_HOST_DEVICE void WithCodes(const Write& write) const {
      write([this](float value, std::int64_t /*index*/) { return EncodeMinMaxUint8(levels_, value); });
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

// The codes of a block of a scheme, written octet by octet; and, unless `residual` is null, what they lose.
template <class Scheme>
struct CodeWriter {
  // code_of(value, index) is the code of element `index` of the block.
  template <class CodeOf>
  TUTTI_HOST_DEVICE void Write(std::int64_t begin, int n, const float (&octet)[kOctet], const CodeOf& code_of) const {
    std::uint8_t codes[kOctet];
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) codes[i] = code_of(octet[i], begin + i);
    if (Scheme::kBits == 4 && n < kOctet) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) codes[i] = i < n ? codes[i] : std::uint8_t{0};
    }
    StoreCodes<Scheme::kBits>(codes, begin, n, code);
    if (residual == nullptr) return;
    float decoded[kOctet];
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) decoded[i] = Scheme::ValueOf(levels, codes[i]);
    StoreRemainder(octet, decoded, n, residual + begin);
  }

  std::uint8_t* code;
  float* residual;
  typename Scheme::Levels levels;
};

// Encodes `values` as the block at `place`.
template <class Scheme, class Team, class Values>
TUTTI_HOST_DEVICE void EncodeRange(const Team& team, const MessageLayout& layout, const BlockPlace<std::uint8_t>& place,
                                   const Values& values, std::uint64_t draw, float* residual) {
  RunningRange range;
  ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
    float octet[kOctet];
    values.LoadOctet(begin, n, octet);
    range.AddOctet(octet, n);
  });
  range = team.Combine(range);
  const bool finite = range.finite();
  const RandomStream random = MakeRandomStream(layout.seed, draw, static_cast<std::uint64_t>(place.index));
  const typename Scheme::Encoder encoder(finite ? range : RunningRange{0, 0, 0}, layout, random);
  float numbers[2];
  encoder.WriteNumbers(numbers);
  if (!finite) PoisonNumbers(numbers);
  const CodeWriter<Scheme> writer{place.code, residual, Scheme::LevelsOf(numbers)};
  const auto write = [&](const auto& code_of) {
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      values.ReloadOctet(begin, n, octet);
      writer.Write(begin, n, octet, code_of);
    });
  };
  if (finite) {
    encoder.WithCodes(write);
  } else {
    write([](float /*value*/, std::int64_t /*index*/) { return std::uint8_t{0}; });
  }
  if (team.rank() == 0) StoreElements(numbers, 2, place.numbers);
}

template <class Scheme>
struct RangeCoder : AloneCoder<RangeCoder<Scheme>> {
  using Levels = typename Scheme::Levels;
  using Code = PackedCodes<Scheme::kBits>;
  struct Numbers {
    float both[2];
  };

  TUTTI_HOST_DEVICE static void LoadNumbers(const BlockPlace<const std::uint8_t>& place, Numbers& numbers) {
    LoadElements(place.numbers, 2, numbers.both);
  }
  TUTTI_HOST_DEVICE static Levels LevelsOf(const Numbers& numbers) { return Scheme::LevelsOf(numbers.both); }
  TUTTI_HOST_DEVICE static void LoadCode(const std::uint8_t* code, std::int64_t begin, int n, Code& of_octet) {
    of_octet.Load(code, begin, n);
  }
  TUTTI_HOST_DEVICE static void ValuesOf(const Levels& levels, const Code& of_octet, float (&octet)[kOctet]) {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = Scheme::ValueOf(levels, of_octet.At(i));
  }

  template <class Team, class Values>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const Values& values, std::uint64_t draw,
                                       float* residual) {
    EncodeRange<Scheme>(team, layout, place, values, draw, residual);
  }
};

using Grid8Coder = RangeCoder<GridScheme<8>>;
using Grid4Coder = RangeCoder<GridScheme<4>>;
using MinMax8Coder = RangeCoder<MinMaxScheme>;

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_RANGE_CODERS_H_
