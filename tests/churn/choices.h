// Reproducible decisions: equal on every machine and in every process that starts from equal numbers.
#ifndef TUTTI_TESTS_CHURN_CHOICES_H_
#define TUTTI_TESTS_CHURN_CHOICES_H_

#include <cstdint>
#include <initializer_list>

#include "absl/types/span.h"

namespace tutti::churn {

class Choices {
 public:
  // Choices of different `keys` are independent of each other.
  explicit Choices(std::initializer_list<std::uint64_t> keys) {
    for (const std::uint64_t key : keys) state_ = Mixed(state_ ^ key);
  }

  // A number in 0 … n-1.
  int Below(int n) { return static_cast<int>(Next() % static_cast<std::uint64_t>(n)); }
  // A number in first … last.
  int Between(int first, int last) { return first + Below(last - first + 1); }
  bool OneIn(int n) { return Below(n) == 0; }
  template <typename T>
  const T& Of(absl::Span<const T> items) {
    return items[static_cast<std::size_t>(Below(static_cast<int>(items.size())))];
  }
  std::uint64_t Next() { return Mixed(state_ += 0x9e3779b97f4a7c15); }

 private:
  // The mixing function of SplitMix64.
  static std::uint64_t Mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  std::uint64_t state_ = 0;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_CHOICES_H_
