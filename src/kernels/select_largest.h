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
inline constexpr int kMostBins = 1 << 11;
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

// A few elements of a block among which its largest are.
struct Candidates {
  static constexpr std::int64_t kMost = 8192;
  static constexpr std::int64_t kSpare = 64;  // is written together with the last of them

  std::int64_t count = 0;
  float values[kMost + kSpare];
  std::uint32_t indices[kMost + kSpare];  // ascending
};

// Finds all elements that are at least as large as some magnitude, which a sample of the values suggests, so that there
// are likely to be somewhat more than `count` of them. False when there turn out to be fewer, or more than fit:
// the largest are then to be found among all values. Values that are NaN or infinite are candidates. Thread-safe,
// allocates nothing.
bool FindCandidates(absl::Span<const float> values, std::int64_t count, Candidates& candidates);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SELECT_LARGEST_H_
