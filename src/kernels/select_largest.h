// Finds the elements of largest magnitude without sorting or memory: the selection of the codec `topk`.
#ifndef TUTTI_KERNELS_SELECT_LARGEST_H_
#define TUTTI_KERNELS_SELECT_LARGEST_H_

#include <bit>
#include <cstdint>

#include "absl/types/span.h"

namespace tutti::kernels {

// |value| as an integer of the same order; NaN is above Inf, and Inf above every number.
constexpr std::uint32_t MagnitudeOf(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFu; }

// The search fixes some of the 31 bits of the least selected magnitude in each round: the exponent and 3 bits, then 10
// bits, then 10 bits.
struct SelectionRound {
  int shift;
  int bits;
};
inline constexpr int kSelectionRounds = 3;
inline constexpr int kMaxBins = 1 << 11;
constexpr SelectionRound SelectionRoundAt(int round) {
  return round == 0 ? SelectionRound{20, 11} : SelectionRound{round == 1 ? 10 : 0, 10};
}

struct Largest {
  bool finite = true;           // false when any value is NaN or infinite; the rest is then meaningless
  std::uint32_t magnitude = 0;  // the magnitude of the smallest selected element
  std::int64_t ties = 0;        // how many elements of exactly that magnitude are selected: the first ones
};

// Finds the `count` elements of largest magnitude (1 ≤ count ≤ values.size()); of equal ones the first are selected.
// Thread-safe, allocates nothing.
Largest FindLargest(absl::Span<const float> values, std::int64_t count);

// The largest elements of a block, in the order of their indices.
struct LargestFew {
  static constexpr std::int64_t kMax = 8192;
  static constexpr std::int64_t kSpare = 64;  // may be written, too

  bool finite = true;  // false when any value of the block is NaN or infinite; the rest is then meaningless
  float values[kMax + kSpare];
  std::uint32_t indices[kMax + kSpare];
};

// Finds the `count` elements that FindLargest does, when they are few of a large block: among candidates, which are the
// elements from some magnitude on. A sample of the values suggests that magnitude. False when there turn out to be
// fewer candidates than elements to be found, or more than kMax: only FindLargest can then tell. Thread-safe,
// allocates nothing.
bool FindLargestFew(absl::Span<const float> values, std::int64_t count, LargestFew& largest);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SELECT_LARGEST_H_
