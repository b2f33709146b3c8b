// Mistakes in the use of QAdam, and what becomes of a step after an exchange that failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/sync/qadam_training.h"
#include "tests/sync/saved_state.h"
#include "tutti/qadam.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// The phases differ when one rank alone has loaded the state of an earlier training.
TEST(QAdam, RanksInDifferentPhasesMeetAnErrorAndNoGarbage) {
  std::string frozen;
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    for (int step = 1; step <= kWarmUp; ++step) ASSERT_EQ(trainer.Step(step, SomeGradient), absl::OkStatus());
    if (world.rank() == 0) frozen = trainer.qadam->SaveState();
  });
  RunWorld(2, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    if (world.rank() == 0) {
      ASSERT_EQ(trainer.qadam->LoadState(frozen), absl::OkStatus());
    }
    const absl::Status status = trainer.Step(1, SomeGradient);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(" with another schedule, algorithm, option or round of it where rank "));
    EXPECT_EQ(trainer.weights, InitialWeights());
  });
}

TEST(QAdam, AStepAfterAnExchangeThatFailedIsAnError) {
  RunWorld(1, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    ASSERT_EQ(trainer.Step(1, SomeGradient), absl::OkStatus());
    const Tensors before = trainer.weights;
    ASSERT_EQ(trainer.synchronizer->BeginBackward(), absl::OkStatus());
    world.Abort(absl::AbortedError("enough"));
    EXPECT_EQ(trainer.qadam->Step().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(trainer.weights, before);
  });
}

struct CountingSource : MomentumSource {
  absl::StatusOr<int> BeginBackward() override { return 0; }
  void ReplaceGradient(int /*i*/, void* /*stream*/) override { ++replaced; }

  int replaced = 0;
};

// The source of the momentum may be gone when a late hook marks the gradient that was missing.
TEST(MomentumSource, IsLeftAloneAfterABackwardThatFailed) {
  RunWorld(1, [](Communicator& world) {
    const auto synchronizer =
        Synchronizer::Create(world, {{.name = "a", .count = 4, .shape = "4"}, {.name = "b", .count = 4, .shape = "4"}},
                             {.strategy = "qadam"});
    ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
    CountingSource source;
    (*synchronizer)->set_momentum_source(&source);
    ASSERT_EQ((*synchronizer)->BeginBackward(), absl::OkStatus());
    (*synchronizer)->MarkReady(0);
    EXPECT_THAT(std::string((*synchronizer)->FinishBackward().message()), HasSubstr("without a gradient of b"));
    EXPECT_EQ(source.replaced, 1);
    (*synchronizer)->MarkReady(1);
    EXPECT_EQ(source.replaced, 1);
  });
}

// A step would use gradients of this rank alone, of which some are old.
TEST(QAdam, AStepAfterABackwardThatHasNotEndedIsAnError) {
  RunWorld(2, [](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    for (const bool frozen : {false, true}) {
      int step = static_cast<int>(trainer.qadam->step());
      while (trainer.qadam->frozen() != frozen) ASSERT_EQ(trainer.Step(++step, SomeGradient), absl::OkStatus());
      const Tensors before = trainer.weights;
      const auto expect_refused = [&] {
        const absl::Status refused = trainer.qadam->Step();
        EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
        EXPECT_THAT(std::string(refused.message()), HasSubstr("no backward that synchronizes has ended"));
        EXPECT_EQ(trainer.weights, before);
      };
      for (const bool after_another : {false, true}) {  // whose step is left out
        if (after_another) {
          ASSERT_EQ(trainer.Backward(step + 1, SomeGradient), absl::OkStatus());
        }
        ASSERT_EQ(trainer.synchronizer->BeginBackward(), absl::OkStatus());
        for (const int i : {2, 1}) trainer.synchronizer->MarkReady(i);  // one bucket of two leaves
        expect_refused();
        ASSERT_EQ(trainer.synchronizer->CancelBackward(), absl::OkStatus());
        expect_refused();
        trainer.synchronizer->ZeroGradients();
      }
      ASSERT_EQ(trainer.Step(++step, SomeGradient), absl::OkStatus());
      EXPECT_NE(trainer.weights, before);
    }
  });
}

TEST(QAdam, ParametersToLeaveAloneAreListedInOrder) {
  RunWorld(1, [](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    const Tensors before = trainer.weights;
    ASSERT_EQ(trainer.Backward(1, SomeGradient), absl::OkStatus());
    for (const std::vector<int>& wrong : {std::vector{1, 0}, {1, 1}, {-1}, {0, 3}}) {
      const absl::Status refused = trainer.qadam->Step(wrong);
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
      EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0: QAdam::Step: untouched["));
      EXPECT_EQ(trainer.weights, before);
    }
    ASSERT_EQ(trainer.qadam->Step({0, 2}), absl::OkStatus());
    EXPECT_EQ(trainer.weights[0], before[0]);
    EXPECT_NE(trainer.weights[1], before[1]);
    EXPECT_EQ(trainer.weights[2], before[2]);
  });
}

struct Mistake {
  std::string name;
  std::function<void(std::vector<QAdam::Weights>&, std::vector<QAdam::Group>&)> make;
  std::string told;
};

class QAdamArguments : public ::testing::TestWithParam<Mistake> {};

TEST_P(QAdamArguments, AreCheckedAndComparedOverTheRanks) {
  for (const bool on_all_ranks : {true, false}) {
    RunWorld(3, [&](Communicator& world) {
      Tensors memory = InitialWeights();
      std::vector<QAdam::Weights> weights;
      for (int i = 0; i < 3; ++i) weights.push_back({memory[i].data(), kGroupOf[i]});
      std::vector<QAdam::Group> groups = TwoGroups();
      if (on_all_ranks || world.rank() == 1) GetParam().make(weights, groups);
      auto synchronizer = Synchronizer::Create(world, QAdamModel(), QAdamOptions());
      ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
      const absl::Status status = QAdam::Create(**synchronizer, weights, groups).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().told));
      EXPECT_THAT(std::string(status.message()), HasSubstr(on_all_ranks ? "" : "rank 1"));
      EXPECT_EQ((*synchronizer)->momentum_source(), nullptr);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, QAdamArguments,
    ::testing::Values(
        Mistake{"Lr", [](auto&, auto& groups) { groups[1].lr = -0.5; }, "groups[1].lr"},
        Mistake{"Beta1", [](auto&, auto& groups) { groups[0].beta1 = 1; }, "groups[0].beta1"},
        Mistake{"Beta2", [](auto&, auto& groups) { groups[0].beta2 = -0.1; }, "groups[0].beta2"},
        Mistake{"Eps", [](auto&, auto& groups) { groups[1].eps = std::nan(""); }, "groups[1].eps"},
        Mistake{"WeightDecay", [](auto&, auto& groups) { groups[1].weight_decay = -1; }, "groups[1].weight_decay"},
        Mistake{"Group", [](auto& weights, auto&) { weights[2].group = 2; }, "weights[2].group"},
        Mistake{"NoData", [](auto& weights, auto&) { weights[0].data = nullptr; }, "weights[0].data of a is null"},
        Mistake{"Shared", [](auto& weights, auto&) { weights[1].data = weights[0].data; },
                "parameters a and b have weights in common"},
        Mistake{"Overlap", [](auto& weights, auto&) { weights[2].data = static_cast<float*>(weights[0].data) + 699; },
                "parameters a and c have weights in common"},
        Mistake{"TooFewWeights", [](auto& weights, auto&) { weights.pop_back(); }, "weights"}),
    [](const ::testing::TestParamInfo<Mistake>& test) { return test.param.name; });

TEST(QAdam, RefusesWhatMakesNoSense) {
  RunWorld(1, [&](Communicator& world) {
    Tensors memory = InitialWeights();
    const std::vector<QAdam::Weights> weights = {{memory[0].data()}, {memory[1].data()}, {memory[2].data()}};
    auto bytegrad = Synchronizer::Create(world, QAdamModel(), {.strategy = "bytegrad"});
    ASSERT_TRUE(bytegrad.ok());
    EXPECT_THAT(std::string(QAdam::Create(**bytegrad, weights, {{}}).status().message()),
                HasSubstr("needs a synchronizer with the strategy qadam, but the synchronizer has bytegrad"));

    auto synchronizer = Synchronizer::Create(world, QAdamModel(), QAdamOptions());
    ASSERT_TRUE(synchronizer.ok());
    EXPECT_THAT(std::string((*synchronizer)->BeginBackward().message()), HasSubstr("create a QAdam"));
    EXPECT_THAT(
        std::string(QAdam::Create(**synchronizer, {{nullptr}, weights[1], weights[2]}, {{}}).status().message()),
        HasSubstr("weights[0].data of a is null"));
    {
      auto qadam = QAdam::Create(**synchronizer, weights, {{}});
      ASSERT_TRUE(qadam.ok()) << qadam.status();
      EXPECT_THAT(std::string(QAdam::Create(**synchronizer, weights, {{}}).status().message()),
                  HasSubstr("has a QAdam already"));
      EXPECT_EQ((*qadam)->Step().code(), absl::StatusCode::kFailedPrecondition);
    }
    EXPECT_EQ((*synchronizer)->BeginBackward().code(), absl::StatusCode::kFailedPrecondition);

    for (const char* strategy : {"qadam:warmup_steps=0", "qadam:freeze=never"}) {
      EXPECT_EQ(Synchronizer::Create(world, QAdamModel(), {.strategy = strategy}).status().code(),
                absl::StatusCode::kInvalidArgument);
    }
  });
}

TEST(QAdam, RefusesStatesOfAnotherModelAndDamagedOnes) {
  RunWorld(1, [&](Communicator& world) {
    QAdamTrainer trainer(world, QAdamOptions());
    ASSERT_EQ(trainer.Step(1, SomeGradient), absl::OkStatus());
    const std::string state = trainer.qadam->SaveState();
    const auto error = [&](const std::string& wrong) {
      const absl::Status status = trainer.qadam->LoadState(wrong);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(trainer.qadam->SaveState(), state);
      return std::string(status.message());
    };
    EXPECT_THAT(error(""), HasSubstr("the state of 0 bytes was not made by QAdam::SaveState"));
    EXPECT_THAT(error("x" + state), HasSubstr("bytes was not made by QAdam::SaveState"));
    EXPECT_THAT(error(state + "x"), HasSubstr("damaged"));
    for (std::size_t byte = 16; byte < state.size(); ++byte) {  // behind magic and version
      std::string damaged = state;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
      EXPECT_THAT(error(damaged), HasSubstr("are not those that were saved")) << byte;
    }
    // The fields `step`, `frozen` and, of the first parameter, `changes` and `frozen`, in a state that was made up.
    for (const std::size_t field : {std::size_t{2}, std::size_t{3}, std::size_t{6}, std::size_t{7}}) {
      std::string content = Unsigned(state);
      content[field * sizeof(std::int64_t) + 7] = '\xff';
      EXPECT_THAT(error(Signed(content)), HasSubstr("damaged"));
    }
    for (std::size_t length : {std::size_t{16}, std::size_t{60}, state.size() - 1}) {
      EXPECT_NE(error(state.substr(0, length)), "");
    }
    const auto with_one_parameter = [&](const std::string& name, const std::function<void(QAdam&)>& use) {
      auto synchronizer = Synchronizer::Create(world, {{name, DType::kF32, 4, "4"}}, QAdamOptions());
      ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
      float weights[4] = {};
      auto qadam = QAdam::Create(**synchronizer, {{weights}}, {{}});
      ASSERT_TRUE(qadam.ok()) << qadam.status();
      use(**qadam);
    };
    with_one_parameter("q", [&](QAdam& other) {
      EXPECT_THAT(std::string(other.LoadState(state).message()),
                  HasSubstr("no parameter that is trained here (q, …) is in the state, which has a, …, nor are they as "
                            "many and as large"));
      EXPECT_THAT(error(other.SaveState()), HasSubstr("(a, …) is in the state, which has q, …"));
    });
    with_one_parameter("b", [&](QAdam& other) {
      EXPECT_THAT(std::string(other.LoadState(state).message()),
                  HasSubstr("the state has 500 elements of b, expected 4"));
      EXPECT_THAT(error(other.SaveState()), HasSubstr("the state has 4 elements of b, expected 500"));
    });
  });
}

// Those that are not trained come last in a state, whatever their place in the model.
TEST(QAdam, LoadsNoStateByOrderThatHasParametersWhichWereNotTrained) {
  RunWorld(1, [](Communicator& world) {
    QAdamTrainer all(world, QAdamOptions());
    QAdamTrainer part(world, QAdamOptions(), TwoGroups(), InitialWeights(), {0, 1});
    ASSERT_EQ(part.qadam->LoadState(all.qadam->SaveState()), absl::OkStatus());
    QAdamTrainer renamed(world, QAdamOptions(), TwoGroups(), InitialWeights(), {0, 1, 2}, "net.");
    const absl::Status refused = renamed.qadam->LoadState(part.qadam->SaveState());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("no parameter that is trained here (net.a, …) is in the state, which has a, …"));
    EXPECT_EQ(all.qadam->LoadState(part.qadam->SaveState()), absl::OkStatus());
  });
}

// The first gradient of such a parameter after the warm-up would be divided by no variance.
TEST(QAdam, RefusesAParameterThatWasFrozenWhenTheWarmUpEnded) {
  RunWorld(2, [](Communicator& world) {
    for (const bool was_trained_before : {false, true}) {
      QAdamTrainer all(world, QAdamOptions());
      QAdamTrainer part(world, QAdamOptions(), TwoGroups(), InitialWeights(), {0, 1});
      if (was_trained_before) {
        ASSERT_EQ(all.Step(1, SomeGradient), absl::OkStatus());
        ASSERT_EQ(part.qadam->LoadState(all.qadam->SaveState()), absl::OkStatus());
      }
      for (int step = 2; !part.qadam->frozen(); ++step) ASSERT_EQ(part.Step(step, SomeGradient), absl::OkStatus());
      const std::string before = all.qadam->SaveState();
      const absl::Status refused = all.qadam->LoadState(part.qadam->SaveState());
      EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(refused.message()),
                  HasSubstr("parameter c was not trained when the warm-up of the state ended"));
      EXPECT_EQ(all.qadam->SaveState(), before);
    }
  });
}

}  // namespace
}  // namespace tutti
