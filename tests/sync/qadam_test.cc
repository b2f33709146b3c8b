// Compares QAdam on worlds of threads with a reference that simulates all ranks in one loop.
#include "tutti/qadam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kernels/float16.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/world.h"
#include "tests/sync/qadam_reference.h"
#include "tests/sync/qadam_training.h"
#include "tests/sync/saved_state.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSteps = 50;

// The weights of all ranks after each step.
std::vector<Tensors> ReferenceWeights(int ranks, bool error_feedback, const Gradients& gradient, int steps = kSteps) {
  const std::vector<QAdam::Group> groups = TwoGroups();
  const std::vector<std::vector<int>> buckets = {{2, 1}, {0}};
  const Tensors initial = InitialWeights();
  std::vector<Tensors> after(steps, initial);
  for (const std::vector<int>& bucket : buckets) {
    std::vector<ReferenceElement> elements;
    std::vector<float> weights;
    for (int i : bucket) {
      const QAdam::Group& group = groups[kGroupOf[i]];
      for (float weight : initial[i]) {
        elements.push_back({group.lr, group.beta1, group.beta2, group.eps, group.weight_decay, i});
        weights.push_back(weight);
      }
    }
    QAdamReference reference(ranks, kWarmUp, error_feedback, elements, weights);
    for (int step = 1; step <= steps; ++step) {
      std::vector<std::vector<float>> gradients(ranks);
      for (Rank rank = 0; rank < ranks; ++rank) {
        for (int i : bucket) {
          for (std::int64_t k = 0; k < QAdamModel()[i].count; ++k)
            gradients[rank].push_back(gradient(rank, step, i, k));
        }
      }
      reference.Step(gradients);
      std::size_t at = 0;
      for (int i : bucket) {
        for (float& weight : after[step - 1][i]) weight = reference.weights()[at++];
      }
    }
  }
  return after;
}

class QAdamInWorldOf : public ::testing::TestWithParam<int> {};

TEST_P(QAdamInWorldOf, EqualsTheReferenceBitForBit) {
  for (const bool error_feedback : {false, true}) {
    const std::vector<Tensors> expected = ReferenceWeights(GetParam(), error_feedback, SomeGradient);
    RunWorld(GetParam(), [&](Communicator& world) {
      QAdamTrainer trainer(world, QAdamOptions(error_feedback ? ",error_feedback=true" : ""));
      for (int step = 1; step <= kSteps; ++step) {
        ASSERT_EQ(trainer.Step(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(trainer.qadam->frozen(), step >= kWarmUp);
        ASSERT_EQ(trainer.qadam->step(), step);
        ASSERT_EQ(trainer.weights, expected[step - 1]) << "step " << step << " error_feedback " << error_feedback;
      }
    });
  }
}

// The thread of rank 0 takes subnormal numbers for zero, as after torch.set_flush_denormal(True).
TEST(QAdam, FreezesAlikeInEveryFloatingMode) {
#if defined(__x86_64__)
  const auto tiny_for_c = [](Rank rank, int step, int parameter, std::int64_t k) {
    return parameter == 2 ? 1e-19f : SomeGradient(rank, step, parameter, k);
  };
  std::vector<std::string> states(2);
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    if (world.rank() == 0) _mm_setcsr(_mm_getcsr() | 0x8040);
    for (int step = 1; step <= kWarmUp; ++step) ASSERT_EQ(trainer.Step(step, tiny_for_c), absl::OkStatus());
    ASSERT_TRUE(trainer.qadam->frozen());
    states[world.rank()] = trainer.qadam->SaveState();
  });
  EXPECT_TRUE(states[0] == states[1]);
#else
  GTEST_SKIP() << "the mode of this processor is set in another way";
#endif
}

TEST_P(QAdamInWorldOf, AccumulatesSmallBatchesThroughTheSwitch) {
  constexpr int kSmall = 3;
  const auto small = [](int batch) {
    return [batch](Rank rank, int step, int i, std::int64_t k) { return SomeGradient(rank, 100 * batch + step, i, k); };
  };
  const Gradients sum = [&](Rank rank, int step, int i, std::int64_t k) {
    return small(0)(rank, step, i, k) + small(1)(rank, step, i, k) + small(2)(rank, step, i, k);
  };
  constexpr int kAround = kWarmUp + 3;
  const std::vector<Tensors> expected = ReferenceWeights(GetParam(), false, sum, kAround);
  RunWorld(GetParam(), [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    for (int step = 1; step <= kAround; ++step) {
      trainer.synchronizer->set_synchronize(false);
      for (int batch = 0; batch + 1 < kSmall; ++batch) {
        ASSERT_EQ(trainer.Backward(step, small(batch)), absl::OkStatus());
        EXPECT_EQ(trainer.qadam->Step().code(), absl::StatusCode::kFailedPrecondition);
      }
      trainer.synchronizer->set_synchronize(true);
      ASSERT_EQ(trainer.Step(step, small(kSmall - 1)), absl::OkStatus());
      ASSERT_EQ(trainer.weights, expected[step - 1]) << "step " << step;
    }
  });
}

TEST_P(QAdamInWorldOf, StepsThatAreLeftOutCountForNothing) {
  const std::vector<Tensors> expected = ReferenceWeights(GetParam(), false, SomeGradient, kWarmUp + 3);
  RunWorld(GetParam(), [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    for (int step = 1; step <= kWarmUp + 3; ++step) {
      if (step % 4 == 0 || step > kWarmUp) {  // as a gradient scaler does after an overflow on one rank
        const Gradients overflow = [](Rank rank, int, int, std::int64_t) {
          return rank == 0 ? std::numeric_limits<float>::infinity() : 1.0f;
        };
        ASSERT_EQ(trainer.Backward(step, overflow), absl::OkStatus());
        EXPECT_FALSE(std::isfinite(*static_cast<float*>(trainer.synchronizer->GradientView(0).get())));
        trainer.synchronizer->ZeroGradients();
      }
      ASSERT_EQ(trainer.Step(step, SomeGradient), absl::OkStatus());
      ASSERT_EQ(trainer.weights, expected[step - 1]) << "step " << step;
    }
  });
}

TEST_P(QAdamInWorldOf, AnInterruptedTrainingGoesOnBitForBit) {
  const std::vector<Tensors> expected = ReferenceWeights(GetParam(), true, SomeGradient, kWarmUp + 10);
  for (const int interrupted : {1, kWarmUp - 1, kWarmUp, kWarmUp + 5}) {
    RunWorld(GetParam(), [&](Communicator& world) {
      std::string state;
      std::string optimizer;
      Tensors weights;
      {
        QAdamTrainer before(world, QAdamOptions(",error_feedback=true"));
        for (int step = 1; step <= interrupted; ++step) ASSERT_EQ(before.Step(step, SomeGradient), absl::OkStatus());
        state = before.synchronizer->SaveState();
        optimizer = before.qadam->SaveState();
        weights = before.weights;
      }
      QAdamTrainer after(world, QAdamOptions(",error_feedback=true"), TwoGroups(), weights);
      ASSERT_EQ(after.synchronizer->LoadState({&state, 1}), absl::OkStatus());
      ASSERT_EQ(after.qadam->LoadState(optimizer), absl::OkStatus());
      EXPECT_EQ(after.qadam->SaveState(), optimizer);
      for (int step = interrupted + 1; step <= kWarmUp + 10; ++step) {
        ASSERT_EQ(after.Step(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(after.weights, expected[step - 1]) << "step " << step << " interrupted after " << interrupted;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, QAdamInWorldOf, ::testing::ValuesIn(SweptWorlds({1, 2, 3, 4, 5, 8})));

TEST(QAdam, UnusedParametersGoOnWithTheirMomentum) {
  constexpr int kUsed = 2;  // in every third step only a and b have a gradient
  const auto used = [](int step) { return step % 3 == 0 ? kUsed : 3; };
  const std::vector<Tensors> expected = ReferenceWeights(3, false, [&](Rank rank, int step, int i, std::int64_t k) {
    return i < used(step) ? SomeGradient(rank, step, i, k) : 0.0f;
  });
  RunWorld(3, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions("", /*allow_unused=*/true));
    for (int step = 1; step <= kSteps; ++step) {
      ASSERT_EQ(trainer.Step(step, SomeGradient, used(step)), absl::OkStatus());
      ASSERT_EQ(trainer.weights, expected[step - 1]) << "step " << step;
    }
  });
}

// As in torch's Adam, the steps of a parameter begin with its first gradient.
TEST(QAdam, AParameterThatIsUsedLateBeginsAsAdamBegins) {
  constexpr int kFirst = 9;  // the step in which c is used first
  const std::vector<int> all = {};
  const std::vector<int> without_c = {2};
  const std::vector<Tensors> expected = ReferenceWeights(2, false, SomeGradient);
  const std::vector<Tensors> expected_late = ReferenceWeights(
      2, false, [](Rank rank, int step, int i, std::int64_t k) { return SomeGradient(rank, step + kFirst - 1, i, k); });
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions("", /*allow_unused=*/true));
    for (int step = 1; step <= kWarmUp; ++step) {
      ASSERT_EQ(trainer.Backward(step, SomeGradient, step < kFirst ? 2 : 3), absl::OkStatus());
      ASSERT_EQ(trainer.qadam->Step(step < kFirst ? without_c : all), absl::OkStatus());
      trainer.synchronizer->ZeroGradients();
      for (const int i : {0, 1}) ASSERT_EQ(trainer.weights[i], expected[step - 1][i]) << "step " << step;
      const std::vector<float> c = step < kFirst ? InitialWeights()[2] : expected_late[step - kFirst][2];
      ASSERT_EQ(trainer.weights[2], c) << "step " << step;
    }
  });
}

// As in torch's Adam, m, v and t of a parameter are kept while the parameter is frozen; one that was frozen from the
// start begins as Adam begins. Which parameters are trained changes with a new synchronizer alone.
TEST(QAdam, MomentsFollowTheirParametersThroughModelsInWhichOthersAreFrozen) {
  const std::vector<int> all = {0, 1, 2};
  const std::vector<int> a_and_b = {0, 1};
  const std::vector<int> b_and_c = {1, 2};
  struct Stage {
    int end;  // the first step of the next stage
    std::vector<int> trained;
    std::vector<int> untouched;
  };
  const std::vector<Stage> stages = {{4, a_and_b, {2}},      {9, all, {}},       {12, b_and_c, {0}},
                                     {kWarmUp + 3, all, {}}, {28, b_and_c, {0}}, {31, all, {}}};
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer whole(world, QAdamOptions());
    Tensors weights = InitialWeights();
    std::string state = whole.qadam->SaveState();
    int step = 1;
    for (const Stage& stage : stages) {
      QAdamTrainer part(world, QAdamOptions(), TwoGroups(), weights, stage.trained);
      ASSERT_EQ(part.qadam->LoadState(state), absl::OkStatus()) << "step " << step;
      for (; step < stage.end; ++step) {
        ASSERT_EQ(whole.Backward(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(whole.qadam->Step(stage.untouched), absl::OkStatus());
        whole.synchronizer->ZeroGradients();
        ASSERT_EQ(part.Step(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(part.weights, whole.weights) << "step " << step;
      }
      weights = part.weights;
      state = part.qadam->SaveState();
    }
    EXPECT_TRUE(state == whole.qadam->SaveState());
  });
}

// A wrapper may put its own name before those of all parameters, as torch.compile does.
TEST(QAdam, AStateOfOtherNamesAloneIsLoadedByOrder) {
  RunWorld(2, [](Communicator& world) {
    for (const int steps : {3, kWarmUp + 1}) {
      QAdamTrainer before(world, QAdamOptions());
      for (int step = 1; step <= steps; ++step) ASSERT_EQ(before.Step(step, SomeGradient), absl::OkStatus());
      QAdamTrainer after(world, QAdamOptions(), TwoGroups(), before.weights, {0, 1, 2}, "_orig_mod.");
      ASSERT_EQ(after.qadam->LoadState(before.qadam->SaveState()), absl::OkStatus());
      EXPECT_THAT(after.qadam->begun_anew(), testing::IsEmpty());
      for (int step = steps + 1; step <= steps + 3; ++step) {
        ASSERT_EQ(before.Step(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(after.Step(step, SomeGradient), absl::OkStatus());
        ASSERT_EQ(after.weights, before.weights) << "step " << step;
      }
      ASSERT_EQ(before.qadam->LoadState(after.qadam->SaveState()), absl::OkStatus());
    }
  });
}

TEST(QAdam, NamesTheParametersThatBeginAnew) {
  RunWorld(2, [](Communicator& world) {
    QAdamTrainer part(world, QAdamOptions(), TwoGroups(), InitialWeights(), {0, 1});
    QAdamTrainer all(world, QAdamOptions());
    EXPECT_THAT(all.qadam->begun_anew(), testing::IsEmpty());
    ASSERT_EQ(all.qadam->LoadState(part.qadam->SaveState()), absl::OkStatus());
    EXPECT_THAT(all.qadam->begun_anew(), testing::ElementsAre("c"));
    ASSERT_EQ(all.qadam->LoadState(all.qadam->SaveState()), absl::OkStatus());
    EXPECT_THAT(all.qadam->begun_anew(), testing::IsEmpty());
  });
}

// The gradient is always 1, so every step moves an element by lr, before and after the warm-up; c is used in every
// fourth step only.
TEST(QAdam, AParameterThatIsUsedSeldomMovesByTheLearningRate) {
  const auto one = [](Rank, int, int, std::int64_t) { return 1.0f; };
  const std::vector<int> all = {};
  const std::vector<int> without_c = {2};
  RunWorld(2, [&](Communicator& world) {
    const QAdam::Group group{.lr = 0.01};
    QAdamTrainer trainer(world, QAdamOptions("", /*allow_unused=*/true), {group, group});
    for (int step = 1; step <= kSteps; ++step) {
      const bool uses_c = step % 4 == 0;
      const float before = trainer.weights[2][0];
      ASSERT_EQ(trainer.Backward(step, one, uses_c ? 3 : 2), absl::OkStatus());
      ASSERT_EQ(trainer.qadam->Step(uses_c ? all : without_c), absl::OkStatus());
      trainer.synchronizer->ZeroGradients();
      EXPECT_NEAR(before - trainer.weights[2][0], uses_c ? group.lr : 0, 1e-3 * group.lr) << "step " << step;
      if (step == kSteps / 2) {
        const std::string state = trainer.qadam->SaveState();
        ASSERT_EQ(trainer.qadam->LoadState(state), absl::OkStatus());
        EXPECT_EQ(trainer.qadam->SaveState(), state);
      }
    }
  });
}

TEST(QAdam, ElementsWithoutVarianceMoveNoFurtherThanTheFloorAllows) {
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions(), {{}, {}});
    const auto gradient = [](Rank, int step, int i, std::int64_t k) {
      const bool dead = i == 1 || k % 10 == 0;  // all of b, a tenth of the others
      return dead && step <= kWarmUp ? 0.0f : 1.0f;
    };
    for (int step = 1; step <= kWarmUp; ++step) ASSERT_EQ(trainer.Step(step, gradient), absl::OkStatus());
    const Tensors before = trainer.weights;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(before[i][0], InitialWeights()[i][0]);
    for (int step = kWarmUp + 1; step <= kSteps; ++step) {
      const Tensors last = trainer.weights;
      ASSERT_EQ(trainer.Step(step, gradient), absl::OkStatus());
      for (int i = 0; i < 3; ++i) {
        for (std::size_t k = 0; k < last[i].size(); ++k) {
          const float moved = std::abs(trainer.weights[i][k] - last[i][k]);
          ASSERT_GT(moved, 0) << "parameter " << i << " element " << k;
          ASSERT_LE(moved, 0.13) << "parameter " << i << " element " << k;
        }
      }
    }
  });
}

TEST(QAdam, TheWarmUpLastsUntilThereIsVariance) {
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions(), {{}, {}});
    for (int step = 1; step <= kWarmUp + 5; ++step) {
      const float size = step <= kWarmUp + 3 ? 0 : 1;
      ASSERT_EQ(trainer.Step(step, [&](Rank, int, int, std::int64_t) { return size; }), absl::OkStatus());
      EXPECT_EQ(trainer.qadam->frozen(), step > kWarmUp + 3) << "step " << step;
    }
  });
}

std::vector<QAdam::Group> ShortMemory() {
  return {{.beta2 = 0.9}, {.beta2 = 0.8}};  // the norm is compared every 10 steps
}

// The first step in which the norm of v differs by less than a factor of 0.96 from the norm 10 steps before, when all
// gradients of a step have one size.
int StepOfSettling(const std::function<double(int)>& size, int first) {
  double v[2] = {0, 0};
  double last = 0;
  for (int step = 1; step <= 1000; ++step) {
    double norm = 0;
    for (int g = 0; g < 2; ++g) {
      const double beta2 = ShortMemory()[g].beta2;
      v[g] = beta2 * v[g] + (1 - beta2) * size(step) * size(step);
      norm += (g == 0 ? 1000 : 500) * v[g] / (1 - std::pow(beta2, step));
    }
    if (step % 10 != 0) continue;
    if (step >= first && last > 0 && norm / last > 0.96 && last / norm > 0.96) return step;
    last = norm;
  }
  return 0;
}

TEST(QAdam, FreezesOnEveryRankInTheStepInWhichTheVarianceHasSettled) {
  const std::vector<std::function<double(int)>> sizes = {
      [](int) { return 1; }, [](int step) { return step <= 12 ? 4 : 1; }, [](int step) { return 1 + step / 100.0; }};
  for (const std::function<double(int)>& size : sizes) {
    const int expected = StepOfSettling(size, kWarmUp);
    EXPECT_GE(expected, kWarmUp);
    RunWorld(3, [&](Communicator& world) {
      QAdamTrainer trainer(world, QAdamOptions(",freeze=variance"), ShortMemory());
      std::int64_t bytes_in_warmup = 0;
      for (int step = 1; step <= expected + 1; ++step) {
        const Gradients gradient = [&](Rank, int s, int, std::int64_t k) {
          return static_cast<float>(k % 2 == 0 ? size(s) : -size(s));
        };
        ASSERT_EQ(trainer.Step(step, gradient), absl::OkStatus());
        ASSERT_EQ(trainer.qadam->frozen(), step >= expected) << "step " << step;
        const std::int64_t bytes = trainer.synchronizer->TakeStatistics().wire_bytes;
        if (step == 1) bytes_in_warmup = bytes;
        EXPECT_EQ(bytes<bytes_in_warmup, step> expected) << "step " << step;
      }
    });
  }
}

TEST(QAdam, ARankWhoseVarianceDiffersIsNamed) {
  RunWorld(3, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions(",freeze=variance"), ShortMemory());
    for (int step = 1; step <= kWarmUp; ++step) {
      if (step == 12 && world.rank() == 1) {
        std::string content = Unsigned(trainer.qadam->SaveState());
        content.back() = static_cast<char>(content.back() ^ 1);  // changes the exponent of one v
        ASSERT_EQ(trainer.qadam->LoadState(Signed(content)), absl::OkStatus());
      }
      const absl::Status status = trainer.Step(step, SomeGradient);
      if (step < kWarmUp) {
        ASSERT_EQ(status, absl::OkStatus());
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1"), HasSubstr("norm of the variance")));
    }
  });
}

// One rank, so that the average is exact: what 16-bit weights and momentum make of the equations.
TEST(QAdam, SixteenBitWeightsAreRoundedOncePerStep) {
  constexpr int kFirst = 5;
  RunWorld(1, [&](Communicator& world) {
    const auto round = [](float value) { return kernels::FloatFromBFloat16(kernels::BFloat16FromFloat(value)); };
    std::uint16_t weight = kernels::BFloat16FromFloat(1.0f);
    auto synchronizer =
        Synchronizer::Create(world, {{"p", DType::kBF16, 1, "1"}}, {.strategy = "qadam:warmup_steps=5"});
    ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
    auto qadam = QAdam::Create(**synchronizer, {{&weight}}, {{.lr = 0.1, .weight_decay = 0.5}});
    ASSERT_TRUE(qadam.ok()) << qadam.status();
    auto* const view = static_cast<std::uint16_t*>((*synchronizer)->GradientView(0).get());
    float x = 1;
    float m = 0;
    float v = 0;
    for (int t = 1; t <= 12; ++t) {
      const float gradient = static_cast<float>(t % 4) - 1.0f;
      *view = kernels::BFloat16FromFloat(gradient);
      ASSERT_EQ((*synchronizer)->BeginBackward(), absl::OkStatus());
      (*synchronizer)->MarkReady(0);
      ASSERT_EQ((*synchronizer)->FinishBackward(), absl::OkStatus());
      ASSERT_EQ((*qadam)->Step(), absl::OkStatus());

      const float g = gradient + 0.5f * x;
      m = 0.9f * m + static_cast<float>(1 - 0.9) * g;
      if (t > kFirst) m = round(m);
      if (t <= kFirst) v = 0.999f * v + static_cast<float>(1 - 0.999) * (g * g);
      const auto size = static_cast<float>(0.1 / (1 - std::pow(0.9, t)));
      const double frozen = 1 - std::pow(0.999, std::min(t, kFirst));
      const float deviation = t <= kFirst ? std::sqrt(v) / static_cast<float>(std::sqrt(frozen))
                                          : std::sqrt(v / static_cast<float>(frozen));
      x = round(x - size * m / (deviation + 1e-8f));
      EXPECT_EQ(kernels::FloatFromBFloat16(weight), x) << "step " << t;
    }
  });
}

TEST(QAdam, NewOptionsCountFromTheNextBackwardOn) {
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    ASSERT_EQ(trainer.Step(1, SomeGradient), absl::OkStatus());
    const Tensors before = trainer.weights;
    for (int g : {0, 1}) {
      QAdam::Group group = trainer.qadam->groups()[g];
      group.lr = 0;
      ASSERT_EQ(trainer.qadam->SetGroup(g, group), absl::OkStatus());
    }
    ASSERT_EQ(trainer.Step(2, SomeGradient), absl::OkStatus());
    EXPECT_EQ(trainer.weights, before);
    EXPECT_THAT(std::string(trainer.qadam->SetGroup(1, {.eps = -1}).message()),
                AllOf(HasSubstr("groups[1].eps is -1"), HasSubstr("from 0 on")));
    EXPECT_THAT(std::string(trainer.qadam->SetGroup(2, {}).message()), HasSubstr("group 2"));
  });
}

}  // namespace
}  // namespace tutti
