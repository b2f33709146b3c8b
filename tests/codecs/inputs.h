// Inputs of the codec tests. The numbers come from integer arithmetic alone, so that golden vectors are the same on
// every machine.
#ifndef TESTS_CODECS_INPUTS_H_
#define TESTS_CODECS_INPUTS_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"

namespace tutti {

// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (2014), SplitMix64.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // A number in [-1, 1) that is a multiple of 2^-23.
  float Symmetric() { return static_cast<float>(static_cast<std::int64_t>(Next() >> 40) - (1 << 23)) * 0x1p-23f; }

 private:
  std::uint64_t state_;
};

enum class Input {
  kZeros,
  kConstant,
  kNegativeConstant,
  kUniform,
  kBellShaped,
  kPositive,
  kNegative,
  kOffset,      // values 1000 ± 1e-3
  kOutlier,     // one value a million times the others
  kManyScales,  // magnitudes from 2^-40 to 2^40
  kSparse,      // mostly zeros
  kTiny,        // around 1e-12
  kSubnormal,
  kHuge,     // max − min overflows fp32
  kLargest,  // ± the largest fp32 numbers and 0
};

inline constexpr Input kAllInputs[] = {
    Input::kZeros,    Input::kConstant, Input::kNegativeConstant, Input::kUniform, Input::kBellShaped,
    Input::kPositive, Input::kNegative, Input::kOffset,           Input::kOutlier, Input::kManyScales,
    Input::kSparse,   Input::kTiny,     Input::kSubnormal,        Input::kHuge,    Input::kLargest};

inline absl::string_view Name(Input input) {
  static constexpr absl::string_view kNames[] = {
      "zeros",  "constant", "negative_constant", "uniform", "bell_shaped", "positive",  "negative",
      "offset", "outlier",  "many_scales",       "sparse",  "tiny",        "subnormal", "huge",
      "largest"};
  return kNames[static_cast<int>(input)];
}

inline float MakeValue(Input input, std::int64_t i, SplitMix& random) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const float u = random.Symmetric();
  switch (input) {
    case Input::kZeros:
      return 0.0f;
    case Input::kConstant:
      return 0.3f;
    case Input::kNegativeConstant:
      return -7.1e-20f;
    case Input::kUniform:
      return u;
    case Input::kBellShaped:
      return (u + random.Symmetric() + random.Symmetric() + random.Symmetric()) * 0.01f;
    case Input::kPositive:
      return 2.0f + u;
    case Input::kNegative:
      return -2.0f + u;
    case Input::kOffset:
      return 1000.0f + 1e-3f * u;
    case Input::kOutlier:
      return i == 17 ? 1e3f : 1e-3f * u;
    case Input::kManyScales:
      return std::ldexp(u, static_cast<int>(random.Next() % 81) - 40);
    case Input::kSparse:
      return random.Next() % 16 == 0 ? u : 0.0f;
    case Input::kTiny:
      return 1e-12f * u;
    case Input::kSubnormal:
      return u * 0x1p-130f;
    case Input::kHuge:
      return u * 3e38f;
    case Input::kLargest:
      return random.Next() % 3 == 0 ? 0.0f : u > 0 ? kLargest : -kLargest;
  }
  return 0;
}

inline std::vector<float> MakeValues(Input input, std::int64_t count, std::uint64_t seed = 1) {
  SplitMix random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = MakeValue(input, i, random);
  return values;
}

}  // namespace tutti

#endif  // TESTS_CODECS_INPUTS_H_
