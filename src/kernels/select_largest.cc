#include "kernels/select_largest.h"

#include <array>
#include <cstddef>

namespace tutti::kernels {
namespace {

// Counts values whose magnitude starts with `prefix`, by the bits of the magnitude that follow. Neighbouring values are
// counted in different tables: they often fall into one bin, and adding to a bin twice in a row is slow.
class Histogram {
 public:
  Histogram(absl::Span<const float> values, SelectionRound round, std::uint32_t prefix)
      : bins_(std::size_t{1} << round.bits) {
    const std::uint32_t mask = static_cast<std::uint32_t>(bins_ - 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t bits = MagnitudeOf(values[i]) >> round.shift;
      if (bits >> round.bits == prefix) ++counts_[i % kTables][bits & mask];
    }
  }

  std::int64_t operator[](std::uint32_t bin) const {
    std::int64_t count = 0;
    for (const auto& table : counts_) count += table[bin];
    return count;
  }
  std::uint32_t bins() const { return static_cast<std::uint32_t>(bins_); }

 private:
  static constexpr std::size_t kTables = 2;
  std::size_t bins_;
  std::array<std::array<std::int64_t, kMaxBins>, kTables> counts_ = {};
};

}  // namespace

Largest FindLargest(absl::Span<const float> values, std::int64_t count) {
  Largest found{.ties = count};
  for (int number = 0; number < kSelectionRounds; ++number) {
    const SelectionRound round = SelectionRoundAt(number);
    const Histogram histogram(values, round, found.magnitude);
    std::uint32_t bin = histogram.bins() - 1;
    if (number == 0) {
      constexpr std::uint32_t kInfinity = 0x7F800000u >> SelectionRoundAt(0).shift;
      for (; bin >= kInfinity; --bin) found.finite = found.finite && histogram[bin] == 0;
      if (!found.finite) return found;
    }
    while (histogram[bin] < found.ties) found.ties -= histogram[bin--];
    found.magnitude = found.magnitude << round.bits | bin;
  }
  return found;
}

}  // namespace tutti::kernels
