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
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Whether a call that began at `start` has ended soon after `timeout`. An answer for whom a rank waits counts for half
// a second: a rank that gets no processor for so long may be named itself.
absl::Status HasEndedSoonAfter(absl::Duration timeout, absl::Time start) {
  const absl::Duration late = absl::Now() - start - timeout;
  if (late < absl::Milliseconds(200)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the end of a call was noticed ", absl::FormatDuration(late), " after its timeout"));
}

class BlameBetweenNodes : public ::testing::TestWithParam<std::string> {
 protected:
  // Every rank but the last receives from the next rank; the last makes no call. Each rank calls `before` first.
  void ExpectTheLastIsNamed(int size, absl::Duration timeout, const std::function<void(Communicator&)>& before) {
    WorldOptions options;
    options.transport = GetParam();
    options.ranks_per_node = 1;
    options.communicator.timeout = timeout;
    RunWorldWithLittleTime(size, options, [&](Communicator& comm, RankBarrier& ranks) {
      if (!ranks.AllOk(comm.Barrier().Wait())) return;
      if (comm.rank() == size - 1) {
        (void)ranks.AllOk(absl::OkStatus());
        return;
      }
      before(comm);
      int number = 0;
      const absl::Time start = absl::Now();
      const absl::Status status = comm.Recv(&number, 1, DType::kI32, comm.rank() + 1).Wait();
      if (!ranks.AllOk(HasEndedSoonAfter(comm.timeout(), start))) return;
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("for rank ", size - 1))) << comm.rank();
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
    RunWorldWithLittleTime(3, options, [&](Communicator& comm, RankBarrier& ranks) {
      if (!ranks.AllOk(comm.Barrier().Wait())) return;
      if (comm.rank() == 2) {
        (void)ranks.AllOk(absl::OkStatus());
        return;
      }
      std::vector<int> numbers(2);
      const absl::Time start = absl::Now();
      Work first = comm.Recv(&numbers[0], 1, DType::kI32, 1 - comm.rank());
      Work second = comm.Recv(&numbers[1], 1, DType::kI32, 2);
      const absl::Status status = first.Wait();
      const bool in_time = ranks.AllOk(HasEndedSoonAfter(comm.timeout(), start));
      EXPECT_FALSE(second.Wait().ok());
      if (!in_time) return;
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 2")) << comm.rank();
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
