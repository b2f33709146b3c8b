// Plans with native steps in a world whose buffers are in host memory: they are refused before anything runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/native_machine.h"
#include "tests/harness/world.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(CommunicatorNativeTest, ACallByANativeScheduleIsRefused) {
  RunWorld(2, [](Communicator& comm) {
    std::vector<float> values(8, 1);
    const CallOptions native = {.schedule = *FindSchedule(Collective::kAllReduce, "native")};
    const absl::Status refused =
        comm.AllReduce(values.data(), values.data(), 8, DType::kF32, ReduceOp::kSum, native).Wait();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("schedule all_reduce:native: no native collectives here: NCCL has them, on memory of GPUs"));
    // The group goes on.
    EXPECT_EQ(comm.AllReduce(values.data(), values.data(), 8, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(8, 2));
  });
}

TEST(CommunicatorNativeTest, APlanWithNativeStepsIsRefusedWhenItIsBound) {
  RunWorld(2, [](Communicator& comm) {
    std::vector<float> values(8, 1);
    const CollectiveSpec spec = {.count = 8, .in_place = true};
    const Schedule& native = **FindSchedule(Collective::kAllReduce, "native");
    const auto plan_of = [&](Rank rank) { return BuildPlan(native, spec, rank, 2, WithNative({})); };
    const absl::Status refused = comm.Bind(plan_of, {.out = values.data()}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(std::string(refused.message()),
              std::string("rank ") + std::to_string(comm.rank()) +
                  ": all_reduce:native cannot run in host memory: step 0 (native out[0,32) f32 = all_reduce "
                  "sum(out[0,32) f32) among all #0) needs a native transport, such as NCCL on GPUs");
  });
}

}  // namespace
}  // namespace tutti
