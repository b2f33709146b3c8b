// The output of a plan can be final before the plan has ended.
#include "engine/call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

constexpr std::int64_t kCount = 100'000;

// A bound plan of low_precision_decentralized, whose output does not depend on what the neighbours send.
struct Bound {
  explicit Bound(Communicator& comm) {
    const Strategy strategy = *ParseStrategy("low_precision_decentralized:hierarchical=false");
    absl::StatusOr<Plan> plan = BuildPlan(strategy, DType::kF32, kCount, comm.rank(), comm.size(), comm.plan_options());
    EXPECT_TRUE(plan.ok()) << plan.status();
    state.resize(plan->state_bytes);
    absl::StatusOr<BoundPlan> made =
        comm.Bind(strategy, DType::kF32, kCount, 0, {.out = weights.data(), .state = state.data()});
    EXPECT_TRUE(made.ok()) << made.status();
    bound = *std::move(made);
  }

  std::vector<float> weights = std::vector<float>(kCount, 1.5f);
  std::vector<std::byte> state;
  BoundPlan bound;
};

TEST(Call, HasItsOutputBeforeThePeersHaveSent) {
  std::atomic<bool> has_output = false;
  RunWorld(2, {.ranks_per_node = 1}, [&](Communicator& comm) {
    Bound plan(comm);
    for (int run = 0; run < 3; ++run) {
      // Rank 1 begins when rank 0 has its output.
      if (comm.rank() == 1) has_output.wait(false);
      Work work = plan.bound.Start();
      ASSERT_EQ(work.WaitForOutput(), absl::OkStatus());
      const std::vector<float> early = plan.weights;
      if (comm.rank() == 0) {
        EXPECT_FALSE(work.done() && run == 0);
        has_output = true;
        has_output.notify_all();
      }
      ASSERT_EQ(work.Wait(), absl::OkStatus());
      EXPECT_EQ(work.WaitForOutput(), absl::OkStatus());
      EXPECT_EQ(plan.weights, early);
      EXPECT_NEAR(early[0], 1.5f, 0.01f);
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    }
  });
}

TEST(Call, IsWaitedForByTheWorkThatItWasMovedTo) {
  RunWorld(2, [&](Communicator& comm) {
    float value = 1;
    Work first = comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum);
    Work second = std::move(first);
    EXPECT_EQ(first.Wait().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(second.Wait(), absl::OkStatus());
    EXPECT_EQ(value, 2);
    first = std::move(second);
    EXPECT_EQ(first.Wait(), absl::OkStatus());
    EXPECT_EQ(second.WaitForOutput().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Work().Wait(), absl::OkStatus());
  });
}

TEST(Call, GivesTheErrorOfACallWhoseOutputWillNotCome) {
  RunWorld(2, {.ranks_per_node = 1}, [&](Communicator& comm) {
    std::vector<float> values(kCount, 1.0f);
    if (comm.rank() == 1) return comm.Abort(absl::AbortedError("enough"));
    Work work = comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum);
    EXPECT_FALSE(work.WaitForOutput().ok());
    EXPECT_FALSE(work.Wait().ok());
    EXPECT_FALSE(
        comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum).WaitForOutput().ok());
  });
}

TEST(Call, GoesOnWhenAWaitHasEndedWithoutIt) {
  std::atomic<bool> may_send = false;
  RunWorld(2, [&](Communicator& comm) {
    float value = static_cast<float>(comm.rank());
    if (comm.rank() == 1) {
      may_send.wait(false);
      ASSERT_EQ(comm.Send(&value, 1, DType::kF32, 0).Wait(), absl::OkStatus());
      return;
    }
    Work work = comm.Recv(&value, 1, DType::kF32, 1);
    for (const absl::Duration wait : {-absl::Seconds(1), absl::Milliseconds(5)}) {
      EXPECT_EQ(work.Wait(absl::Now() + wait).code(), absl::StatusCode::kDeadlineExceeded);
    }
    EXPECT_FALSE(work.done());
    may_send = true;
    may_send.notify_all();
    EXPECT_EQ(work.Wait(absl::InfiniteFuture()), absl::OkStatus());
    EXPECT_EQ(value, 1);
    EXPECT_EQ(work.Wait(absl::InfinitePast()), absl::OkStatus()) << "it has ended";
  });
}

TEST(Call, EndsWithItsOwnTimeout) {
  RunWorld(2, [](Communicator& comm) {
    float value = 1;
    EXPECT_THAT(std::string(comm.Barrier({.timeout = -absl::Seconds(1)}).Wait().message()),
                ::testing::HasSubstr("timeout -1s must be positive"));
    if (comm.rank() == 1) return;
    const absl::Status status = comm.Recv(&value, 1, DType::kF32, 1, {.timeout = absl::Milliseconds(30)}).Wait();
    EXPECT_THAT(status.code(), ::testing::AnyOf(absl::StatusCode::kDeadlineExceeded, absl::StatusCode::kUnavailable));
  });
}

TEST(Call, WaitsForItsEndWherePeersWriteTheOutput) {
  RunWorld(3, [&](Communicator& comm) {
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    float* const values = buffer->as<float>().data();
    for (int run = 0; run < 20; ++run) {
      std::fill(values, values + kCount, 1.0f);
      Work work = comm.AllReduce(values, values, kCount, DType::kF32, ReduceOp::kSum);
      ASSERT_EQ(work.WaitForOutput(), absl::OkStatus());
      EXPECT_TRUE(work.done());
      EXPECT_EQ(values[0] + values[kCount - 1], 6.0f);
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    }
  });
}

TEST(Call, OfAnyScheduleHasItsOutputInTime) {
  RunWorld(3, {.ranks_per_node = 1}, [&](Communicator& comm) {
    std::vector<float> values(kCount);
    const CollectiveSpec spec{.collective = Collective::kAllReduce, .count = kCount, .in_place = true};
    for (const Schedule* schedule : AllSchedules()) {
      if (schedule->collective != spec.collective || !schedule->supports(spec, 3, comm.plan_options()).ok()) continue;
      for (int run = 0; run < 10; ++run) {
        std::fill(values.begin(), values.end(), 1.0f);
        Work work =
            comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum, {.schedule = schedule});
        ASSERT_EQ(work.WaitForOutput(), absl::OkStatus());
        ASSERT_EQ(values, std::vector<float>(kCount, 3.0f)) << schedule->name;
        ASSERT_EQ(work.Wait(), absl::OkStatus());
      }
    }
  });
}

}  // namespace
}  // namespace tutti
