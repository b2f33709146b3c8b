// Compares the passes of Adam with their formulas, element by element.
#include "kernels/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/reduce.h"
#include "tests/codecs/inputs.h"

namespace tutti::kernels {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::int64_t kCounts[] = {0, 1, 7, 16, 1043};

// Values rounded to a dtype, as f32 and as they are stored.
struct Operand {
  Operand(DType its_dtype, std::int64_t count, std::uint64_t seed)
      : dtype(its_dtype), stored(static_cast<std::size_t>(count * SizeOf(dtype) + 1)) {
    const std::vector<float> values = MakeValues(Input::kUniform, count, seed);
    Convert(dtype, stored.data(), DType::kF32, values.data(), count, Stores::kCached);
    wide = Wide();
  }

  std::vector<float> Wide() const {
    const auto count = static_cast<std::int64_t>(stored.size()) / SizeOf(dtype);
    std::vector<float> values(static_cast<std::size_t>(count));
    Convert(DType::kF32, values.data(), dtype, stored.data(), count, Stores::kCached);
    return values;
  }

  float Rounded(float value) const {
    std::uint32_t stored_value = 0;
    Convert(dtype, &stored_value, DType::kF32, &value, 1, Stores::kCached);
    Convert(DType::kF32, &value, dtype, &stored_value, 1, Stores::kCached);
    return value;
  }

  DType dtype;
  std::vector<std::uint8_t> stored;
  std::vector<float> wide;
};

AdamFactors Factors(float weight_decay) {
  return {.beta1 = 0.9f,
          .from_gradient1 = 0.1f,
          .beta2 = 0.99f,
          .from_gradient2 = 0.01f,
          .weight_decay = weight_decay,
          .step_size = 0.25f,
          .correction = 0.7f,
          .epsilon = 1e-6f};
}

class AdamPasses : public ::testing::TestWithParam<DType> {
 protected:
  template <typename Check>
  void ForEachCase(Check check) {
    for (const std::int64_t count : kCounts) {
      for (const float weight_decay : {0.0f, 0.1f}) {
        SCOPED_TRACE(testing::Message() << count << " elements, weight_decay " << weight_decay);
        std::vector<float> v = MakeValues(Input::kUniform, count, 4);
        for (float& element : v) element = std::abs(element);
        check(Factors(weight_decay), count, Operand(GetParam(), count, 1), Operand(GetParam(), count, 2),
              MakeValues(Input::kUniform, count, 3), v);
      }
    }
  }
};

TEST_P(AdamPasses, BlendGradientsIntoMomentum) {
  ForEachCase([](const AdamFactors& f, std::int64_t count, Operand gradient, const Operand& weights,
                 const std::vector<float>& m, const std::vector<float>&) {
    BlendIntoMomentum(gradient.dtype, gradient.stored.data(), weights.stored.data(), m.data(), count, f);
    const std::vector<float> momentum = gradient.Wide();
    for (std::int64_t k = 0; k < count; ++k) {
      const float g = gradient.wide[k] + f.weight_decay * weights.wide[k];
      EXPECT_EQ(momentum[k], gradient.Rounded(f.beta1 * m[k] + f.from_gradient1 * g));
    }
  });
}

TEST_P(AdamPasses, StepLikeAdam) {
  ForEachCase([](const AdamFactors& f, std::int64_t count, const Operand& gradient, Operand weights,
                 std::vector<float> m, std::vector<float> v) {
    const std::vector<float> old_m = m;
    const std::vector<float> old_v = v;
    AdamStep(weights.dtype, weights.stored.data(), gradient.stored.data(), m.data(), v.data(), count, f);
    const std::vector<float> x = weights.Wide();
    for (std::int64_t k = 0; k < count; ++k) {
      const float g = gradient.wide[k] + f.weight_decay * weights.wide[k];
      EXPECT_EQ(m[k], f.beta1 * old_m[k] + f.from_gradient1 * g);
      EXPECT_EQ(v[k], f.beta2 * old_v[k] + f.from_gradient2 * (g * g));
      const float step = f.step_size * m[k] / (std::sqrt(v[k]) / f.correction + f.epsilon);
      EXPECT_EQ(x[k], weights.Rounded(weights.wide[k] - step));
    }
  });
}

TEST_P(AdamPasses, StepWithFrozenVariance) {
  ForEachCase([](const AdamFactors& f, std::int64_t count, const Operand& momentum, Operand weights,
                 std::vector<float> m, const std::vector<float>& v) {
    FrozenAdamStep(weights.dtype, weights.stored.data(), momentum.stored.data(), m.data(), v.data(), count, f);
    const std::vector<float> x = weights.Wide();
    for (std::int64_t k = 0; k < count; ++k) {
      EXPECT_EQ(m[k], momentum.wide[k]);
      EXPECT_EQ(x[k], weights.Rounded(weights.wide[k] - f.step_size * m[k] / (std::sqrt(v[k]) + f.epsilon)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, AdamPasses, ::testing::ValuesIn(kDTypes),
                         [](const ::testing::TestParamInfo<DType>& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace tutti::kernels
