// Randomized Hadamard rotation of a block: x ← H · (random signs · x). The rotation preserves lengths (or, where the
// number of elements is an odd power of two, divides lengths by √2) and spreads an outlier over the whole block, so
// that few levels serve the block well (Suresh et al., "Distributed mean estimation with limited communication", 2017).
#ifndef TUTTI_KERNELS_HADAMARD_H_
#define TUTTI_KERNELS_HADAMARD_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tutti/codecs/random.h"

namespace tutti::kernels {

// values ← H · values, with H the Hadamard matrix of ±1 in Sylvester's order, as log2(count) passes of sums and
// differences of elements 1, 2, 4 … apart; `count` is a power of two.
void Hadamard(float* values, std::size_t count);

// The logarithm, rounded down, of a positive number. For GPUs nvcc makes of std::bit_width code that gives wrong
// numbers.
constexpr int FloorLog2(std::size_t count) {
#ifdef __CUDA_ARCH__
  int log = 0;
  while ((count >>= 1) != 0) ++log;
  return log;
#else
  return static_cast<int>(std::bit_width(count)) - 1;
#endif
}

// What a rotation multiplies the values of a piece of `count` elements by, before H and, on the way back, after it: the
// factor 1/√count of each direction is rounded to a power of two, so that no value is rounded; the product of both is
// 1/count.
constexpr float RotationFactorThere(std::size_t count) {
  return 1.0f / static_cast<float>(1u << ((FloorLog2(count) + 1) / 2));
}
constexpr float RotationFactorBack(std::size_t count) {
  return 1.0f / static_cast<float>(1u << (FloorLog2(count) / 2));
}

// The random signs of a rotation, and the sign bit of element `index`: set where the factor is −1.
constexpr RandomStream RotationSigns(std::uint64_t seed) { return MakeRandomStream(seed, 0, 0); }
constexpr std::uint32_t RotationSign(RandomStream signs, std::size_t index) {
  return RandomWord(signs, static_cast<std::uint32_t>(index)) & 0x80000000u;
}

// The rotation of a block that a seed names. A block whose length is no power of two is rotated in pieces whose lengths
// are, the largest first. Values must be below 2^121 in magnitude, or sums may overflow. Thread-safe, allocates
// nothing.
class Rotation {
 public:
  static constexpr std::size_t kMaxElements = 4096;

  explicit Rotation(std::uint64_t seed, std::size_t elements);

  // For each element the sign bit of a factor 1 or −1.
  const std::uint32_t* signs() const { return signs_.data(); }

  // Writes the rotated `values`, at most kMaxElements, to `rotated`.
  void Apply(absl::Span<const float> values, float* rotated) const;
  // Sets `values` to what was rotated into `rotated`, or adds it; `rotated` is destroyed.
  void Undo(float* rotated, bool accumulate, absl::Span<float> values) const;

 private:
  std::array<std::uint32_t, kMaxElements> signs_;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_HADAMARD_H_
