// How a driver sleeps that waits for messages, and for signals at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/message_wait.h"
#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

constexpr CallOptions kDrives = {.caller_drives = true};

std::shared_ptr<const Program> ProgramOf(PlanBuilder b) {
  absl::StatusOr<Plan> plan = std::move(b).Build();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return Compile(*std::move(plan));
}

// Two turns, in which one rank waits for a message and for a signal at once. The message is sent only when that rank
// has answered the signal.
std::shared_ptr<const Program> TwoTurns(Rank rank) {
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
  return ProgramOf(std::move(b));
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
      calls_.push_back(Call::Create(TwoTurns(rank), *world_.ranks[rank].channel));
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

std::shared_ptr<const Program> OneMessage(Rank rank) {
  PlanBuilder b("message", {.collective = Collective::kBarrier}, rank, 2, {});
  const Ref bytes = b.Scratch(DType::kU8, 1);
  if (rank == 0) b.Send(1, bytes);
  if (rank == 1) b.Recv(0, bytes);
  return ProgramOf(std::move(b));
}

// Each message comes a little more than 1 ms after rank 1 has begun to wait for the message, by the clock of the test.
TEST(EngineAlarm, ASleepEndsBeforeTheMessageIsDue) {
  constexpr int kWaits = 60;
  TwoRanks world(/*mapped=*/false, absl::Hours(10));
  TestClock::step_ns = 20'000;
  Call* const calls[] = {Call::Create(OneMessage(0), *world.ranks[0].channel),
                         Call::Create(OneMessage(1), *world.ranks[1].channel)};
  const auto run = [&](Rank rank) {
    Call& call = *calls[rank];
    EXPECT_EQ(call.Wait(call.Submit(kDrives), false, kNeverNanos), absl::OkStatus());
  };
  TestTransport& waiting = *world.ranks[1].transport;
  std::atomic<int> waits = 0;
  std::atomic<int> sleeps_before = 0;
  std::thread waiter([&] {
    for (int i = 0; i < kWaits; ++i) {
      sleeps_before = waiting.sleeps.load();
      ++waits;
      run(1);
    }
  });
  for (int i = 1; i <= kWaits; ++i) {
    while (waits < i || waiting.sleeps == sleeps_before) std::this_thread::yield();
    TestClock::now_ns += 1'000'000;
    run(0);
  }
  waiter.join();
  // Without an alarm each sleep may last 50 ms.
  EXPECT_LT(waiting.shortest_sleep_ns, MessageWait::kMostDueNanos);
  TestClock::step_ns = 0;
  for (Call* const call : calls) call->Release();
}

}  // namespace
}  // namespace tutti
