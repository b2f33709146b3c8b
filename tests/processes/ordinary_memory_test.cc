// Ranks whose buffers lie in ordinary memory, which their peers read in collectives: killed, or stopped, in the middle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"

namespace tutti {
namespace {

// How late the next copy of a page or more from another process begins, in this process.
std::atomic<int> late_ms = 0;

}  // namespace
}  // namespace tutti

// In place of the system library's.
extern "C" ssize_t process_vm_readv(pid_t process, const iovec* here, unsigned long here_count, const iovec* there,
                                    unsigned long there_count, unsigned long flags) {
  const bool is_long = here_count > 1 && here[1].iov_len >= 4096;
  if (is_long) absl::SleepFor(absl::Milliseconds(tutti::late_ms.exchange(0)));
  return syscall(SYS_process_vm_readv, process, here, here_count, there, there_count, flags);
}

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr std::int64_t kBlock = 4 << 20;  // elements; 16 MB: a rank is nearly always in the middle of a call

constexpr absl::Duration kLong = absl::Minutes(5);

// Whether one element of each cache line is `value`.
bool IsFilledWith(const float* floats, float value) {
  for (std::int64_t i = 0; i < kBlock; i += 16) {
    if (floats[i] != value) return false;
  }
  return true;
}

// All-gathers until a call fails, each time with other values, and then uses its input for something else at once.
ProcessWorld::Body GatherUntilItFails(absl::Duration timeout) {
  return [timeout](Communicator& comm, const ProcessWorld::Report& report) {
    if (!comm.plan_options().reads_processes) return report("reads no process");
    std::vector<float> in(kBlock);
    std::vector<float> all(kRanks * kBlock);
    absl::Status status;
    for (int call = 0; status.ok(); ++call) {
      if (call == 3) report("at work");
      std::fill(in.begin(), in.end(), static_cast<float>(call % 100 * kRanks + comm.rank()));
      const CallOptions options = {.timeout = call < 3 ? kLong : timeout};
      status = comm.AllGather(in.data(), all.data(), kBlock, DType::kF32, options).Wait();
      for (Rank rank = 0; rank < kRanks && status.ok(); ++rank) {
        const bool right = IsFilledWith(all.data() + rank * kBlock, static_cast<float>(call % 100 * kRanks + rank));
        if (!right) return report(absl::StrCat("OK, but wrong, in call ", call, " from rank ", rank));
      }
    }
    std::fill(in.begin(), in.end(), -1.0f);
    report(status.ToString());
  };
}

TEST(OrdinaryMemorySlowTest, OfAKilledRankEndsTheCallsOfItsPeers) {
  std::minstd_rand random(7);
  for (int round = 0; round < 6; ++round) {
    ProcessWorld world(kRanks, {.timeout = kLong}, GatherUntilItFails(kLong));
    const std::string first = world.NextLine(0);
    if (first == "reads no process") GTEST_SKIP() << "this system lets no process read another";
    ASSERT_EQ(first, "at work");
    for (const Rank rank : {1, 2}) ASSERT_EQ(world.NextLine(rank), "at work") << "rank " << rank;
    absl::SleepFor(absl::Microseconds(random() % 30'000));
    world.Signal(2, SIGKILL);
    for (const Rank rank : {0, 1}) {
      EXPECT_THAT(world.NextLine(rank), AllOf(StartsWith("UNAVAILABLE"), HasSubstr("rank 2 died")))
          << "rank " << rank << " in round " << round;
    }
  }
}

// The peers of a stopped rank give it up, and use the memory from which it may be in the middle of a copy for something
// else: the rank must not end OK when it goes on.
TEST(OrdinaryMemorySlowTest, IsNotTakenFromRanksThatHaveGivenUp) {
  std::minstd_rand random(8);
  for (int round = 0; round < 6; ++round) {
    ProcessWorld world(kRanks, {.timeout = kLong}, GatherUntilItFails(absl::Seconds(2)));
    const std::string first = world.NextLine(0);
    if (first == "reads no process") GTEST_SKIP() << "this system lets no process read another";
    ASSERT_EQ(first, "at work");
    for (const Rank rank : {1, 2}) ASSERT_EQ(world.NextLine(rank), "at work") << "rank " << rank;
    absl::SleepFor(absl::Microseconds(random() % 30'000));
    world.Stop(2);
    for (const Rank rank : {0, 1}) {
      EXPECT_THAT(world.NextLine(rank), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("for rank 2")))
          << "rank " << rank << " in round " << round;
    }
    world.Signal(2, SIGCONT);
    EXPECT_THAT(world.NextLine(2), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("told by rank")))
        << "round " << round;
  }
}

// A rank whose input is not all memory of its process: both ranks hear why, and nobody hangs.
TEST(OrdinaryMemoryTest, ThatIsNoneIsNamed) {
  ProcessWorld world(2, {.timeout = kLong}, [](Communicator& comm, const ProcessWorld::Report& report) {
    if (!comm.plan_options().reads_processes) return report("reads no process");
    constexpr std::size_t kBytes = 8 << 20;
    void* const in = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // The first and the last byte are there, so that the rank takes the rest for readable.
    if (comm.rank() == 1) munmap(static_cast<char*>(in) + kBytes / 4, kBytes / 2);
    std::vector<float> out(comm.rank() == 0 ? 2 * kBytes / sizeof(float) : 0);
    report(comm.Gather(in, out.data(), kBytes / sizeof(float), DType::kF32, 0).Wait().ToString());
  });
  const std::string first = world.NextLine(0);
  if (first == "reads no process") GTEST_SKIP() << "this system lets no process read another";
  EXPECT_THAT(first, AllOf(StartsWith("UNAVAILABLE"), HasSubstr("rank 1"), HasSubstr("cannot read its memory")));
  EXPECT_THAT(world.NextLine(1), HasSubstr("cannot read its memory"));
}

// Rank 1 comes to its copy when rank 0 has given the call up, and its memory back. That ends the group of the call, and
// nothing else.
TEST(OrdinaryMemoryTest, ThatIsGivenBackAfterATimeoutCostsALateReaderItsCallAlone) {
  ProcessWorld world(2, {.timeout = kLong}, [](Communicator& comm, const ProcessWorld::Report& report) {
    if (!comm.plan_options().reads_processes) return report("reads no process");
    const auto group = comm.Split(0, comm.rank());
    constexpr std::int64_t kBytes = 1 << 20;
    void* const buffer = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const absl::Status met = comm.Barrier().Wait();
    if (!met.ok() || !group.ok() || buffer == MAP_FAILED) return report("no group");
    CallOptions options;
    if (comm.rank() == 0) options.timeout = absl::Milliseconds(200);
    if (comm.rank() == 1) late_ms = 2000;
    report((*group)->Broadcast(buffer, buffer, kBytes, DType::kU8, 0, options).Wait().ToString());
    munmap(buffer, kBytes);
    if (comm.rank() == 0) absl::SleepFor(absl::Seconds(2));  // the other rank reads meanwhile
    for (int call = 0; call < 2; ++call) report(comm.Barrier().Wait().ToString());
    report(comm.Split(0, comm.rank()).status().ToString());
  });
  const std::string first = world.NextLine(0);
  if (first == "reads no process") GTEST_SKIP() << "this system lets no process read another";
  EXPECT_THAT(first, AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("for rank 1")));
  EXPECT_THAT(world.NextLine(1), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("told by rank 0")));
  for (const Rank rank : {0, 1}) {
    for (const char* call : {"first barrier", "second barrier", "another group"}) {
      EXPECT_EQ(world.NextLine(rank), "OK") << call << " of rank " << rank;
    }
  }
}

}  // namespace
}  // namespace tutti
