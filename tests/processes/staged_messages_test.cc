// Calls on (fake) GPUs whose messages go through the host, in processes that are killed or stopped while they are under
// way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/process_world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Rank kVictim = 1;

constexpr absl::Duration kLong = absl::Minutes(5);

CommunicatorOptions OnOneGpu() {
  UseFakeDevices();
  return {.timeout = kLong, .cuda_device = 0, .gpu_transport = "staged"};
}

// Once the rank works, its calls end after `timeout`; joining may take as long as it takes on a busy machine.
ProcessWorld::Body AllReduceUntilItFails(absl::Duration timeout) {
  return [timeout](Communicator& comm, const ProcessWorld::Report& report) {
    constexpr std::int64_t kCount = 600000;
    const FakeMemory memory(0, kCount * 4);
    for (int call = 0;; ++call) {
      std::fill_n(memory.floats(), kCount, 1.0f);
      const CallOptions options = {.timeout = call <= 3 ? kLong : timeout};
      const absl::Status status =
          comm.AllReduce(memory.data(), memory.data(), kCount, DType::kF32, ReduceOp::kSum, options).Wait();
      if (!status.ok()) return report(status.ToString());
      if (memory.floats()[kCount - 1] != 3.0f) return report("a wrong sum");
      if (call == 3) report("works");
    }
  };
}

TEST(StagedMessages, EverySurvivorNamesTheRankThatDied) {
  ProcessWorld world(3, OnOneGpu(), AllReduceUntilItFails(kLong));
  for (const Rank rank : {0, 1, 2}) EXPECT_EQ(world.NextLine(rank), "works");
  world.Signal(kVictim, SIGKILL);
  for (const Rank rank : {0, 2}) {
    EXPECT_THAT(world.NextLine(rank), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 died"))) << "rank " << rank;
  }
}

// A stopped rank takes no messages: it is given up, so that the calls of the others end soon after the deadline.
TEST(StagedMessages, ARankThatIsStoppedIsNamed) {
  ProcessWorld world(3, OnOneGpu(), AllReduceUntilItFails(absl::Seconds(2)));
  for (const Rank rank : {0, 1, 2}) EXPECT_EQ(world.NextLine(rank), "works");
  world.Stop(kVictim);
  const absl::Time begin = absl::Now();
  for (const Rank rank : {0, 2}) {
    EXPECT_THAT(world.NextLine(rank), AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 1"))) << "rank " << rank;
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  world.Signal(kVictim, SIGKILL);
}

}  // namespace
}  // namespace tutti
