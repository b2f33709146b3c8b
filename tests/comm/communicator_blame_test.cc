// Whom an error names when ranks cannot see each other's memory, as between nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class BlameBetweenNodes : public ::testing::TestWithParam<std::string> {
 protected:
  // Every rank but the last receives from the next rank; the last makes no call. Each rank calls `before` first.
  void ExpectTheLastIsNamed(int size, absl::Duration timeout, const std::function<void(Communicator&)>& before) {
    WorldOptions options;
    options.transport = GetParam();
    options.ranks_per_node = 1;
    options.communicator.timeout = timeout;
    std::atomic<int> ended{0};
    RunWorld(size, options, [&](Communicator& comm) {
      EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      if (comm.rank() == size - 1) {
        for (int seen = ended; seen < size - 1; seen = ended) ended.wait(seen);
        return;
      }
      before(comm);
      int number = 0;
      const absl::Status status = comm.Recv(&number, 1, DType::kI32, comm.rank() + 1).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("for rank ", size - 1))) << comm.rank();
      ++ended;
      ended.notify_all();
    });
  }
};

TEST_P(BlameBetweenNodes, NamesTheEndOfAChain) {
  ExpectTheLastIsNamed(5, absl::Seconds(2), [](Communicator&) {});
}

// Rank 1 comes late: the question for whom it waits, from another rank, has come before rank 1 begins to wait.
TEST_P(BlameBetweenNodes, NamesNoRankThatCameLateAndWaitsToo) {
  ExpectTheLastIsNamed(3, absl::Seconds(3), [](Communicator& comm) {
    if (comm.rank() == 1) absl::SleepFor(absl::Seconds(1));
  });
}

// Ranks 0 and 1 have two calls each. In one call they wait for each other, in the other for the rank that hangs.
TEST_P(BlameBetweenNodes, LooksBehindRanksThatWaitForEachOtherInDifferentCalls) {
  for (const int ranks_per_node : {1, 3}) {
    WorldOptions options;
    options.transport = GetParam();
    options.ranks_per_node = ranks_per_node;
    options.communicator.timeout = absl::Seconds(2);
    options.communicator.mapping = CommunicatorOptions::Mapping::kNever;
    std::atomic<int> ended{0};
    RunWorld(3, options, [&](Communicator& comm) {
      EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      if (comm.rank() == 2) {
        for (int seen = ended; seen < 2; seen = ended) ended.wait(seen);
        return;
      }
      std::vector<int> numbers(2);
      Work first = comm.Recv(&numbers[0], 1, DType::kI32, 1 - comm.rank());
      Work second = comm.Recv(&numbers[1], 1, DType::kI32, 2);
      const absl::Status status = first.Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 2")) << comm.rank();
      EXPECT_FALSE(second.Wait().ok());
      ++ended;
      ended.notify_all();
    });
  }
}

// All ranks make calls of another group all the time, in which they wait for each other for moments.
TEST_P(BlameBetweenNodes, NamesTheRankThatLeftACallOutWhileAllAreBusyInAnotherGroup) {
  constexpr int kSize = 3;
  WorldOptions options;
  options.transport = GetParam();
  options.ranks_per_node = 1;
  std::atomic<int> ended{0};
  RunWorld(kSize, options, [&](Communicator& comm) {
    const absl::StatusOr<std::unique_ptr<Communicator>> other = comm.Split(0, comm.rank());
    ASSERT_TRUE(other.ok()) << other.status();
    absl::Status busy;
    std::thread calls([&] {
      float number = 0;
      // Rank 0 says when to stop; all ranks hear so in the same call.
      while (busy.ok() && number < 1) {
        number = comm.rank() == 0 && ended == kSize - 1 ? 1 : 0;
        busy = (*other)->AllReduce(&number, &number, 1, DType::kF32, ReduceOp::kSum).Wait();
      }
    });
    if (comm.rank() != kSize - 1) {
      const absl::Status status = comm.Barrier({.timeout = absl::Seconds(2)}).Wait();
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("for rank ", kSize - 1))) << comm.rank();
      ++ended;
    }
    calls.join();
    EXPECT_EQ(busy, absl::OkStatus());
  });
}

// The lengths of messages that end while the engine's thread naps are checked when the thread wakes up.
TEST_P(BlameBetweenNodes, AMessageOfTheWrongLengthInTheBackgroundIsAnErrorAtOnce) {
  WorldOptions options;
  options.transport = GetParam();
  options.ranks_per_node = 1;
  RunWorld(2, options, [](Communicator& comm) {
    std::vector<std::int32_t> numbers(4);
    if (comm.rank() == 1) {
      absl::SleepFor(absl::Milliseconds(105));
      (void)comm.Send(numbers.data(), 2, DType::kI32, 0).Wait();
      return;
    }
    const absl::Time start = absl::Now();
    const absl::Status status =
        comm.Recv(numbers.data(), 4, DType::kI32, 1, {.caller_drives = true, .background = true}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("8 bytes"));
    EXPECT_LT(absl::Now() - start, absl::Seconds(30));
  });
}

class BlameBetweenNodesSlow : public BlameBetweenNodes {};

TEST_P(BlameBetweenNodesSlow, FindsTheEndOfALongChainInTime) {
  ExpectTheLastIsNamed(16, absl::Seconds(4), [](Communicator&) {});
}

INSTANTIATE_TEST_SUITE_P(, BlameBetweenNodesSlow, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });
INSTANTIATE_TEST_SUITE_P(, BlameBetweenNodes, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
