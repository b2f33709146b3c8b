// Hierarchical strategies on the GPUs of several nodes: NCCL's communicators of the nodes and their leaders, which Bind
// makes. GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/fake_nccl.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kCount = 3001;

Strategy Parse(const char* name) { return ParseStrategy(name).value(); }

// The output of some runs of a strategy, in memory of the GPU or of the host.
std::vector<float> OutputOf(Communicator& comm, const char* name, bool on_device) {
  const FakeMemory on_gpu(comm.rank(), 7 * kCount * 4);
  std::vector<float> on_host(7 * kCount);
  float* const in = on_device ? on_gpu.floats() : on_host.data();
  float* const out = in + kCount;
  float* const state = in + 2 * kCount;
  std::fill_n(state, 5 * kCount, 0.0f);
  const auto fill = [&](float* values) {
    for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>((comm.rank() + 1) * (i % 50) - 60);
  };
  fill(in);
  const bool mixes = Parse(name).algorithm->name == "decentralized";
  absl::StatusOr<BoundPlan> bound =
      comm.Bind(Parse(name), DType::kF32, kCount, 0, {.in = mixes ? in : nullptr, .out = out, .state = state});
  EXPECT_TRUE(bound.ok()) << name << ": " << bound.status();
  if (!bound.ok()) return {};
  EXPECT_LE(bound->plan().state_bytes, 5 * kCount * 4);
  for (std::uint64_t run = 0; run < 3; ++run) {
    fill(out);
    EXPECT_EQ(bound->Start({.draw = run}).Wait(), absl::OkStatus()) << name;
  }
  return {out, out + kCount};
}

// bytegrad without error feedback would take one exchange between these hosts, and two between GPUs, by NCCL.
TEST(DeviceHierarchyTest, StrategiesGiveWhatTheHostGives) {
  for (const char* name : {"gradient_allreduce:hierarchical=true", "decentralized:hierarchical=true",
                           "bytegrad:hierarchical=true,error_feedback=true"}) {
    for (int size = 2; size <= 8; ++size) {
      const int ranks_per_node = size % 2 == 0 ? size / 2 : 2;
      const bool uneven = size % ranks_per_node != 0;
      if (uneven && std::string(name).starts_with("decentralized")) continue;
      RunWorld(size, OnDevices(ranks_per_node), [&](Communicator& comm) {
        const std::vector<float> on_host = OutputOf(comm, name, /*on_device=*/false);
        EXPECT_EQ(OutputOf(comm, name, /*on_device=*/true), on_host) << name << ", " << size << " ranks";
      });
    }
  }
}

// Whether the plan of a bound strategy has native steps of some of the ranks.
bool HasGroups(const BoundPlan& bound) { return !bound.plan().groups.empty(); }

TEST(DeviceHierarchyTest, PlansShareTheCommunicatorsOfTheirGroups) {
  const int before = FakeNccl::LivingCommunicators();
  RunWorld(6, OnDevices(3), [&](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 2 * kCount * 4);
    std::vector<BoundPlan> plans;
    const auto living_after_bind = [&](std::int64_t count) {
      absl::StatusOr<BoundPlan> bound =
          comm.Bind(Parse("gradient_allreduce:hierarchical=true"), DType::kF32, count, 0, {.out = memory.data()});
      EXPECT_TRUE(bound.ok()) << bound.status();
      EXPECT_TRUE(HasGroups(*bound));
      plans.push_back(*std::move(bound));
      EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const int living = FakeNccl::LivingCommunicators() - before;
      EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      return living;
    };
    // The world, three ranks on each of two nodes, and two leaders.
    EXPECT_EQ(living_after_bind(kCount), 6 + 6 + 2);
    EXPECT_EQ(living_after_bind(kCount / 2), 6 + 6 + 2);
    for (int run = 0; run < 2; ++run) {
      for (BoundPlan& plan : plans) EXPECT_EQ(plan.Start().Wait(), absl::OkStatus());
    }
    // A group of ranks is another communicator, with groups of its own.
    absl::StatusOr<std::unique_ptr<Communicator>> part = comm.Split(comm.rank() == 5 ? -1 : 0, 0);
    ASSERT_TRUE(part.ok()) << part.status();
    if (*part == nullptr) return;
    std::fill_n(memory.floats(), kCount, 1.0f);
    absl::StatusOr<BoundPlan> bound = (*part)->Bind(Parse("gradient_allreduce:hierarchical=true,average=false"),
                                                    DType::kF32, kCount, 0, {.out = memory.data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_TRUE(HasGroups(*bound));
    EXPECT_EQ(bound->Start().Wait(), absl::OkStatus());
    EXPECT_EQ(memory.floats()[kCount - 1], 5.0f);
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), before);
}

TEST(DeviceHierarchyTest, ARankThatLeavesWithoutBindingIsNamed) {
  RankBarrier ranks(4);
  RunWorld(4, OnDevices(2, &ranks), [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    if (comm.rank() > 1) return ranks.Wait();
    const FakeMemory memory(comm.rank(), kCount * 4);
    const absl::Status status =
        comm.Bind(Parse("gradient_allreduce:hierarchical=true"), DType::kF32, kCount, 0, {.out = memory.data()})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the native transport of ranks 0, 1: rank 1 "));
    EXPECT_FALSE(comm.Barrier().Wait().ok()) << "the error ends the communicator";
    ranks.Wait();
  });
}

// What lies on a stream among some of the ranks is aborted as well.
TEST(DeviceHierarchyTest, ARankThatDoesNotStartEndsTheCallsOfAll) {
  const int before = FakeNccl::LivingCommunicators();
  RankBarrier ranks(4);
  RunWorld(4, OnDevices(2, &ranks), [&](Communicator& comm) {
    const FakeMemory memory(comm.rank(), kCount * 4);
    absl::StatusOr<BoundPlan> bound =
        comm.Bind(Parse("gradient_allreduce:hierarchical=true"), DType::kF32, kCount, 0, {.out = memory.data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    if (comm.rank() == 3) return ranks.Wait();
    const absl::Status status = bound->Start({.timeout = absl::Milliseconds(300)}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    ranks.Wait();
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), before);
}

}  // namespace
}  // namespace tutti
