// Times of the same thing, measured again and again.
#ifndef BENCH_GPU_SERIES_H_
#define BENCH_GPU_SERIES_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/median.h"

namespace tutti::gpu {

class Series {
 public:
  explicit Series(std::string name) : name_(std::move(name)) {}

  // Adds how long `call` takes on this thread; returns what it returns.
  template <typename Call>
  auto Time(const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = call();
    seconds_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return result;
  }
  void Clear() { seconds_.clear(); }

  double Median() const { return seconds_.empty() ? 0 : MedianOf(seconds_); }
  double Quantile(double share) const {
    if (seconds_.empty()) return 0;
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }

  // "figure: NAME = 3.14 us (9 of 10 within 4.00)": the median, in the form that tests/gpu/bundle reads.
  std::string Figure(const std::string& unit, double units_per_second) const {
    return absl::StrFormat("figure: %s = %.2f %s (9 of 10 within %.2f)", name_, Median() * units_per_second, unit,
                           Quantile(0.9) * units_per_second);
  }

 private:
  std::string name_;
  std::vector<double> seconds_;
};

}  // namespace tutti::gpu

#endif  // BENCH_GPU_SERIES_H_
