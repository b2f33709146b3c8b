// Calls of synchronizers that must not match: of two synchronizers that look alike, of two steps, of two kinds.
#include "sync/caller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = 100;

std::unique_ptr<Synchronizer> Make(Communicator& world, const std::string& strategy = "gradient_allreduce") {
  absl::StatusOr<std::unique_ptr<Synchronizer>> made =
      Synchronizer::Create(world, {{"weight", DType::kF32, kCount, "100"}}, {.strategy = strategy});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

absl::Status Backward(Synchronizer& synchronizer, float gradient = 1) {
  if (absl::Status status = synchronizer.BeginBackward(); !status.ok()) return status;
  std::fill_n(static_cast<float*>(synchronizer.GradientView(0).get()), kCount, gradient);
  synchronizer.MarkReady(0);
  return synchronizer.FinishBackward();
}

absl::Status Step(Synchronizer& synchronizer) {
  if (absl::Status status = synchronizer.BeforeStep(); !status.ok()) return status;
  return synchronizer.AfterStep();
}

// Expects that `status` is the error of calls that do not match, names both callers, and says what is wrong.
void ExpectMismatch(const absl::Status& status, const std::string& one, const std::string& other,
                    const std::string& wrong) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(one), HasSubstr(other), HasSubstr(wrong)));
}

TEST(Caller, NumbersAreEqualOnAllRanksAndNeverGivenTwice) {
  std::uint32_t numbers[3][4] = {};
  RunWorld(3, [&](Communicator& world) {
    std::unique_ptr<Communicator> pair = *world.Split(world.rank() == 0 ? -1 : 0, world.rank());
    std::unique_ptr<Synchronizer> of_two = pair == nullptr ? nullptr : Make(*pair);
    for (std::uint32_t& number : numbers[world.rank()]) number = Make(world)->number();
    EXPECT_TRUE(of_two == nullptr || of_two->number() < numbers[world.rank()][0]);
  });
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(numbers[rank][i], numbers[0][i]);
      EXPECT_GT(numbers[rank][i], i == 0 ? 0 : numbers[rank][i - 1]);
    }
  }
}

TEST(Caller, TwinsDoNotSwapTheirGradients) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> first = Make(world);
    const std::unique_ptr<Synchronizer> second = Make(world);
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(Backward(*first), absl::OkStatus());
      ASSERT_EQ(Backward(*second), absl::OkStatus());
    }
    const absl::Status status = Backward(world.rank() == 0 ? *first : *second);
    ExpectMismatch(status, absl::StrCat("for the exchange of synchronizer ", first->number(), ", round 4"),
                   absl::StrCat("for the exchange of synchronizer ", second->number(), ", round 4"),
                   "the ranks train their models in different orders: give each model a communicator of its own");
  });
}

TEST(Caller, StepsAreNotMixedByARankThatLeavesOutABackward) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world);
    for (int step = 0; step < 3; ++step) {
      ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
      ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
    }
    if (world.rank() == 1) {
      ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
    }
    ExpectMismatch(Backward(*synchronizer), "round 4", "round 5", "one rank has left out a backward()");
  });
}

TEST(Caller, StepsThatAllRanksLeaveOutAreNoMistake) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world);
    ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
    ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
    ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
    ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
    // The number of small batches that a rank accumulates differs between ranks.
    synchronizer->set_synchronize(false);
    for (int batch = 0; batch < 2 + world.rank(); ++batch) {
      ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
    }
    synchronizer->set_synchronize(true);
    ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
    ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
  });
}

TEST(Caller, AStateBringsRanksTogetherAgain) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world);
    const std::string state = synchronizer->SaveState();
    ASSERT_EQ(Backward(*synchronizer), absl::OkStatus());
    if (world.rank() == 1) {
      ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
      ASSERT_EQ(Step(*synchronizer), absl::OkStatus());
    }
    ASSERT_EQ(synchronizer->LoadState({state}), absl::OkStatus());
    EXPECT_EQ(Backward(*synchronizer), absl::OkStatus());
  });
}

TEST(Caller, CallsOfOneKindDoNotMeetThoseOfAnother) {
  struct Kind {
    std::string name;
    std::function<absl::Status(Synchronizer&)> act;
  };
  const Kind backward = {"the exchange", [](Synchronizer& synchronizer) { return Backward(synchronizer); }};
  const Kind check = {"BroadcastState, CheckState, LoadState or Agree",
                      [](Synchronizer& synchronizer) { return synchronizer.CheckState({}); }};
  const Kind overflow = {"AgreeOnOverflow",
                         [](Synchronizer& synchronizer) { return synchronizer.AgreeOnOverflow(false).status(); }};
  const Kind scale = {"SetLossScale", [](Synchronizer& synchronizer) { return synchronizer.SetLossScale(2); }};
  for (const auto& [one, other] :
       {std::pair(backward, check), std::pair(check, overflow), std::pair(overflow, scale), std::pair(scale, check)}) {
    RunWorld(2, [&one = one, &other = other](Communicator& world) {
      const std::unique_ptr<Synchronizer> synchronizer = Make(world);
      const absl::Status status = (world.rank() == 0 ? one : other).act(*synchronizer);
      const std::string of_synchronizer = absl::StrCat(" of synchronizer ", synchronizer->number());
      ExpectMismatch(status, one.name + of_synchronizer, other.name + of_synchronizer,
                     "unequal numbers of steps, or other calls between the steps");
    });
  }
}

TEST(Caller, UsersSignTheirOwnCalls) {
  RunWorld(2, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> first = Make(world);
    const std::unique_ptr<Synchronizer> second = Make(world);
    float sum = 1;
    const auto add = [&](const Synchronizer& synchronizer) {
      return world.AllReduce(&sum, &sum, 1, DType::kF32, ReduceOp::kSum, synchronizer.OwnCall()).Wait();
    };
    EXPECT_EQ(add(*first), absl::OkStatus());
    EXPECT_EQ(sum, 2);
    ExpectMismatch(add(world.rank() == 0 ? *first : *second), absl::StrCat("OwnCall of synchronizer ", first->number()),
                   absl::StrCat("OwnCall of synchronizer ", second->number()), "in different orders");
  });
}

}  // namespace
}  // namespace tutti
