// How a driver sleeps that waits for messages and for signals at once.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

constexpr CallOptions kDrives = {.caller_drives = true};

// Two turns, in which one rank waits for a message and for a signal at once. The message is sent only when that rank
// has answered the signal.
std::shared_ptr<const Program> ProgramOf(Rank rank) {
  PlanBuilder b("turns", {.collective = Collective::kBarrier}, rank, 2, {.peers_mapped = true});
  const Ref mine = b.Scratch(DType::kU8, 1);
  const Ref early = b.Scratch(DType::kU8, 1);
  for (const Rank first : {0, 1}) {
    if (rank == first) {
      b.Signal();
      b.Recv(1 - rank, mine);
      b.Send(1 - rank, mine);
    } else {
      b.Recv(1 - rank, early);
      b.Wait(1 - rank);
      b.Send(1 - rank, mine);
    }
  }
  absl::StatusOr<Plan> plan = std::move(b).Build();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return Compile(*std::move(plan));
}

class EngineSleep : public testing::Test {
 public:
  ~EngineSleep() override {
    TestClock::step_ns = 0;
    for (Call* const call : calls_) call->Release();
  }

 protected:
  EngineSleep() {
    TestClock::step_ns = 1'000'000;  // nobody polls for long
    for (const Rank rank : {0, 1}) {
      // A sleep that nobody ends makes the test hang.
      world_.ranks[rank].transport->sleeps_until_woken = true;
      calls_.push_back(Call::Create(ProgramOf(rank), *world_.ranks[rank].channel));
    }
  }
  absl::Status Run(Rank rank) {
    Call& call = *calls_[static_cast<std::size_t>(rank)];
    return call.Wait(call.Submit(kDrives), false, kNeverNanos);
  }
  TestRank& rank(Rank r) { return world_.ranks[r]; }

 private:
  TwoRanks world_{/*mapped=*/true, absl::Hours(10)};
  std::vector<Call*> calls_;
};

TEST_F(EngineSleep, ASignalWakesARankThatSleepsInItsTransport) {
  std::thread sleeper([&] { EXPECT_EQ(Run(1), absl::OkStatus()); });
  while (rank(1).presence->sleeps_in_transport == 0) std::this_thread::yield();
  EXPECT_EQ(Run(0), absl::OkStatus());
  sleeper.join();
  EXPECT_GT(rank(1).transport->sleeps, 0);
}

TEST_F(EngineSleep, NoSignalIsMissedWhateverTheMomentAtWhichItComes) {
  constexpr int kRuns = 500;
  const auto run = [&](Rank rank) {
    for (int i = 0; i < kRuns; ++i) ASSERT_EQ(Run(rank), absl::OkStatus());
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

}  // namespace
}  // namespace tutti
