// The coder of `uint4_block` with rotation: a block is turned by the rotation of hadamard.h before its values are
// coded, and turned back after they are decoded.
#ifndef TUTTI_KERNELS_ROTATED_CODER_H_
#define TUTTI_KERNELS_ROTATED_CODER_H_

#include <bit>
#include <cstdint>

#include "kernels/hadamard.h"
#include "kernels/range_coders.h"

namespace tutti::kernels {

struct RotatedGrid4Coder {
  static constexpr bool kAlone = false;
  static constexpr bool kOnePass = false;
  struct Scratch {
    float values[Rotation::kMaxElements];  // one rotated block
  };

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& scratch, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t draw) {
    const RandomStream signs = RotationSigns(layout.seed);
    for (std::int64_t begin = 0; begin < place.elements;) {
      const std::int64_t n = PieceOf(place.elements - begin);
      const float factor = RotationFactorThere(static_cast<std::size_t>(n));
      for (std::int64_t i = begin + team.rank(); i < begin + n; i += team.size()) {
        scratch.values[i] = Signed(signs, i, values.At(i) * factor);
      }
      Hadamard(team, scratch.values + begin, n);
      begin += n;
    }
    EncodeRange<GridScheme<4>>(team, layout, place, ValueSource(scratch.values), draw, /*residual=*/nullptr);
  }

  template <class Team>
  TUTTI_HOST_DEVICE static bool Decode(const Team& team, Scratch& scratch, const MessageLayout& layout,
                                       const BlockPlace<const std::uint8_t>& place, Output output,
                                       const ValueSink& values) {
    const RandomStream signs = RotationSigns(layout.seed);
    Grid4Coder::Scratch none;
    Grid4Coder::Decode(team, none, layout, place, Output::kSet, ValueSink(scratch.values));
    for (std::int64_t begin = 0; begin < place.elements;) {
      const std::int64_t n = PieceOf(place.elements - begin);
      const float factor = RotationFactorBack(static_cast<std::size_t>(n));
      Hadamard(team, scratch.values + begin, n);
      for (std::int64_t i = begin + team.rank(); i < begin + n; i += team.size()) {
        values.Put(output, Signed(signs, i, scratch.values[i] * factor), i);
      }
      begin += n;
    }
    return true;
  }

 private:
  // The length of the first piece of what is left of a block.
  TUTTI_HOST_DEVICE static std::int64_t PieceOf(std::int64_t left) {
    return std::int64_t{1} << FloorLog2(static_cast<std::size_t>(left));
  }
  TUTTI_HOST_DEVICE static float Signed(RandomStream signs, std::int64_t index, float value) {
    const std::uint32_t sign = RotationSign(signs, static_cast<std::size_t>(index));
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ sign);
  }

  // Multiplies values[0, count), a power of two, by the Hadamard matrix. Earlier and later writes of the team to them
  // need no Sync.
  template <class Team>
  TUTTI_HOST_DEVICE static void Hadamard(const Team& team, float* values, std::int64_t count) {
    team.Sync();
    for (std::int64_t distance = 1; distance < count; distance *= 2) {
      for (std::int64_t pair = team.rank(); pair < count / 2; pair += team.size()) {
        const std::int64_t i = 2 * pair - (pair & (distance - 1));
        const float a = values[i];
        const float b = values[i + distance];
        values[i] = a + b;
        values[i + distance] = a - b;
      }
      team.Sync();
    }
  }
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_ROTATED_CODER_H_
