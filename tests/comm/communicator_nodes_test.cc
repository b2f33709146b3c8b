// Conformance of schedules that are for several nodes with several ranks each, on real data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/comm/checked_call.h"
#include "tests/harness/calls.h"
#include "tests/harness/world.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using Case = std::tuple<std::string, const Schedule*>;

struct Nodes {
  int ranks;
  int ranks_per_node;
};
constexpr Nodes kWorlds[] = {{4, 2}, {6, 3}, {6, 2}, {8, 2}, {8, 4}};

class NodesTest : public ::testing::TestWithParam<Case> {
 protected:
  const Schedule* schedule() const { return std::get<1>(GetParam()); }
  // Makes the call where the collective has it; the buffers lie in the arena, and then elsewhere.
  void Call(Communicator& comm, const CollectiveSpec& spec, std::int64_t count) const {
    const CollectiveSpec whole = SpecOf(spec, count, comm.rank(), comm.size());
    if (!Validate(whole, comm.rank(), comm.size()).ok()) return;  // the collective has no in-place form
    const absl::Status served = schedule()->supports(whole, comm.size(), comm.plan_options());
    ASSERT_TRUE(served.ok()) << served;
    CheckedCall(comm, schedule(), spec, count, /*arena=*/true);
    CheckedCall(comm, schedule(), spec, count, /*arena=*/false);
  }
};

TEST_P(NodesTest, EveryWorldCountAndPlacement) {
  for (const Nodes& nodes : kWorlds) {
    const WorldOptions options = {.transport = std::get<0>(GetParam()), .ranks_per_node = nodes.ranks_per_node};
    RunWorld(nodes.ranks, options, [&](Communicator& comm) {
      const std::int64_t size = comm.size();
      const std::int64_t several_stages = size == 4 ? 100'003 : 9'001;
      for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, size - 1, size + 1, several_stages}) {
        for (const bool in_place : {false, true}) {
          Call(comm,
               {.collective = schedule()->collective,
                .op = count % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg,
                .root = static_cast<Rank>(count % size),
                .in_place = in_place},
               count);
        }
      }
    });
  }
}

TEST_P(NodesTest, EveryTypeAndOperator) {
  RunWorld(4, {.transport = std::get<0>(GetParam()), .ranks_per_node = 2}, [&](Communicator& comm) {
    for (const DType dtype : kAllDTypes) {
      for (const ReduceOp op : kAllReduceOps) {
        if (Reduces(schedule()->collective) ? !HasOp(dtype, op) : op != ReduceOp::kSum) continue;
        for (const bool in_place : {false, true}) {
          Call(comm, {.collective = schedule()->collective, .dtype = dtype, .op = op, .root = 3, .in_place = in_place},
               261);
        }
      }
    }
  });
}

// The results of one call are not read by a neighbour that is still in the call before.
TEST_P(NodesTest, CallsThatFollowEachOtherDoNotMix) {
  RunWorld(4, {.transport = std::get<0>(GetParam()), .ranks_per_node = 2}, [&](Communicator& comm) {
    for (int call = 0; call < 50; ++call) {
      CheckedCall(comm, schedule(), {.collective = schedule()->collective, .root = call % 4}, 1 + call * 97,
                  /*arena=*/true);
    }
  });
}

// Ranks of the node read that a rank has no memory for the call. Those of other nodes, which wait for messages, hear of
// it as of an error of the group.
TEST(WantOfMemoryTest, OnOneRankEndsACallBetweenNodesOnAll) {
  for (const std::string& transport : WorldTransports()) {
    RunWorld(4, {.transport = transport, .region_bytes = 16 << 20, .ranks_per_node = 2}, [](Communicator& comm) {
      std::vector<Buffer> hog;
      for (std::int64_t bytes = 8 << 20; comm.rank() == 1 && bytes >= 4096; bytes /= 2) {
        for (absl::StatusOr<Buffer> more = comm.Allocate(bytes); more.ok(); more = comm.Allocate(bytes)) {
          hog.push_back(*std::move(more));
        }
      }
      std::vector<float> values(500'000, 1);
      const CallOptions hierarchical{.schedule = *FindSchedule(Collective::kAllReduce, "hierarchical")};
      const auto sum = [&] {
        return comm.AllReduce(values.data(), values.data(), 500'000, DType::kF32, ReduceOp::kSum, hierarchical).Wait();
      };
      const absl::Status status = sum();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << "rank " << comm.rank() << ": " << status;
      EXPECT_EQ(sum(), comm.status());
      EXPECT_EQ(comm.status().code(), absl::StatusCode::kResourceExhausted) << comm.status();
    });
  }
}

TEST(PlansForNodesTest, AreRefusedWhereTheyMapARankOnAnotherNode) {
  RunWorld(4, {.ranks_per_node = 2}, [](Communicator& comm) {
    const CollectiveSpec spec{.count = 64};
    std::vector<float> in(64), out(64);
    const auto bind = [&](const PlanOptions& options, const char* schedule) {
      const auto plan_of = [&](Rank rank) {
        return BuildPlan(**FindSchedule(spec.collective, schedule), spec, rank, 4, options);
      };
      return comm.Bind(plan_of, {.in = in.data(), .out = out.data()}).status();
    };
    const PlanOptions on_one_node{.peers_mapped = true};
    EXPECT_THAT(std::string(bind(on_one_node, "direct").message()), testing::HasSubstr("which is on another node"));
    EXPECT_EQ(bind(comm.plan_options(), "hierarchical"), absl::OkStatus());
  });
}

TEST(PlansForNodesTest, AreRefusedByAllRanksWhereOneMapsARankOnAnotherNode) {
  RunWorld(4, {.ranks_per_node = 2}, [](Communicator& comm) {
    const CollectiveSpec spec{.count = 64};
    std::vector<float> in(64), out(64);
    const auto plan_of = [&](Rank rank) {
      PlanBuilder b("mine", spec, rank, 4, {.peers_mapped = true});
      if (rank == 3) b.Signal();
      if (rank == 0) b.Wait(3);
      BuildPart(**FindSchedule(spec.collective, "ring"), b);
      return std::move(b).Build();
    };
    EXPECT_EQ(comm.Bind(plan_of, {.in = in.data(), .out = out.data()}).status(),
              absl::InvalidArgumentError("plan mine of rank 0 maps the memory of rank 3, which is on another node"));
  });
}

std::vector<const Schedule*> SchedulesForNodes() {
  std::vector<const Schedule*> schedules = {AllSchedules().begin(), AllSchedules().end()};
  std::erase_if(schedules, [](const Schedule* schedule) {
    return IsPointToPoint(schedule->collective) || NodesFor(*schedule, 4)[0].empty();
  });
  return schedules;
}

INSTANTIATE_TEST_SUITE_P(
    , NodesTest, ::testing::Combine(::testing::ValuesIn(WorldTransports()), ::testing::ValuesIn(SchedulesForNodes())),
    [](const auto& test) {
      const Schedule& schedule = *std::get<1>(test.param);
      return absl::StrCat(std::get<0>(test.param), "_", Name(schedule.collective), "_", schedule.name);
    });

}  // namespace
}  // namespace tutti
