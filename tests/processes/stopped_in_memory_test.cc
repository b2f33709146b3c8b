// A rank that is stopped while it works in its peers' memory, and continues long after the peers have given up on this
// rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr Rank kVictim = 2;
constexpr std::int64_t kCount = 8 << 20;  // 32 MB: a rank is nearly always in the middle of a call

constexpr absl::Duration kLong = absl::Minutes(5);

// Memory that the test shares with all ranks, which are forked from the test.
struct Stage {
  std::atomic<bool> victim_has_ended{false};
};

class SharedStage {
 public:
  SharedStage()
      : memory_(mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        stage_(new (memory_) Stage) {}
  ~SharedStage() { munmap(memory_, sizeof(Stage)); }
  SharedStage(const SharedStage&) = delete;
  SharedStage& operator=(const SharedStage&) = delete;
  Stage& operator*() const { return *stage_; }

 private:
  void* const memory_;
  Stage* const stage_;
};

// Whether one element of each cache line is `value`. To look at all would take a rank so long that its peers, which
// wait for its next call, might give up.
bool IsFilledWith(absl::Span<const float> floats, float value) {
  for (std::size_t i = 0; i < floats.size(); i += 64 / sizeof(float)) {
    if (floats[i] != value) return false;
  }
  return true;
}

// Sums until a sum fails. Then the buffers are the caller's again: no peer may write to them. Joining and the first
// sums may take as long as they take on a busy machine.
ProcessWorld::Body SumUntilItFails(Stage& stage) {
  return [&stage](Communicator& comm, const ProcessWorld::Report& report) {
    absl::StatusOr<Buffer> in = comm.Allocate(kCount * 4);
    absl::StatusOr<Buffer> out = comm.Allocate(kCount * 4);
    if (!in.ok() || !out.ok()) return report("no memory");
    const absl::Span<float> sums = out->as<float>();
    absl::Status status;
    for (int call = 0; status.ok(); ++call) {
      if (call == 3) report("at work");
      std::fill_n(in->as<float>().data(), kCount, static_cast<float>(call % 100 + comm.rank()));
      const CallOptions options = {.timeout = call < 3 ? kLong : absl::Seconds(2)};
      status = comm.AllReduce(in->data(), out->data(), kCount, DType::kF32, ReduceOp::kSum, options).Wait();
      const auto sum = static_cast<float>(kRanks * (call % 100) + 3);
      if (status.ok() && !IsFilledWith(sums, sum)) return report(absl::StrCat("OK, but wrong, in call ", call));
    }
    std::fill(in->as<float>().begin(), in->as<float>().end(), -1.0f);
    std::fill(sums.begin(), sums.end(), comm.rank() == 1 ? -3.0f : -2.0f);
    report(status.ToString());
    if (comm.rank() == kVictim) return;
    // The others go on with the same buffer, whose pages may have left their reach in the meantime.
    const absl::StatusOr<std::unique_ptr<Communicator>> rest = comm.Group({0, 1}, "the others");
    if (!rest.ok()) return report(rest.status().ToString());
    const absl::Status sent = (*rest)->Broadcast(sums.data(), sums.data(), kCount, DType::kF32, 0).Wait();
    if (!sent.ok()) return report(sent.ToString());
    while (!stage.victim_has_ended) absl::SleepFor(absl::Milliseconds(1));
    const bool kept = std::all_of(sums.begin(), sums.end(), [](float x) { return x == -2.0f; }) &&
                      std::all_of(in->as<float>().begin(), in->as<float>().end(), [](float x) { return x == -1.0f; });
    report(kept ? "kept" : "written to by a peer");
  };
}

TEST(StoppedInMemorySlowTest, NeitherEndsOkNorWritesIntoItsPeers) {
  std::minstd_rand random(12);
  for (int round = 0; round < 8; ++round) {
    const SharedStage stage;
    ProcessWorld world(kRanks, {.timeout = kLong, .schedules = "all_reduce=direct"}, SumUntilItFails(*stage));
    for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_EQ(world.NextLine(rank), "at work") << "rank " << rank;
    absl::SleepFor(absl::Microseconds(random() % 30'000));
    world.Stop(kVictim);
    for (const Rank rank : {0, 1}) {
      EXPECT_THAT(world.NextLine(rank), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("for rank 2")))
          << "rank " << rank << " in round " << round;
    }
    world.Signal(kVictim, SIGCONT);
    // The victim's error is the cause that the first rank that gave up has told.
    EXPECT_THAT(world.NextLine(kVictim), AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr("told by rank")))
        << "round " << round;
    (*stage).victim_has_ended = true;
    for (const Rank rank : {0, 1}) EXPECT_EQ(world.NextLine(rank), "kept") << "rank " << rank << " in round " << round;
  }
}

}  // namespace
}  // namespace tutti
