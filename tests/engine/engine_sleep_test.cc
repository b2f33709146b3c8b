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

// Rank 1 waits for messages, each of which rank 0 sends once rank 1 is asleep and some time has passed by the clock of
// the test.
class EngineAlarm : public testing::Test {
 public:
  ~EngineAlarm() override {
    TestClock::step_ns = 0;
    for (Call* const call : calls_) call->Release();
  }

 protected:
  // A call on both ranks, and the time that passes while rank 1 waits for it.
  struct Waited {
    Call* of_ranks[2];
    std::int64_t nanos;
  };

  EngineAlarm() { TestClock::step_ns = 20'000; }
  Waited MakeCall(std::int64_t nanos) {
    Waited made{.of_ranks = {}, .nanos = nanos};
    for (const Rank rank : {0, 1}) {
      made.of_ranks[rank] = calls_.emplace_back(Call::Create(OneMessage(rank), *world_.ranks[rank].channel));
    }
    return made;
  }
  // Makes the calls in turn, `rounds` times. Returns how long the shortest sleep of rank 1 so far was to last.
  std::int64_t ShortestSleep(const std::vector<Waited>& calls, int rounds) {
    TestTransport& waiting = *world_.ranks[1].transport;
    const auto run = [](Call& call) {
      EXPECT_EQ(call.Wait(call.Submit(kDrives), false, kNeverNanos), absl::OkStatus());
    };
    std::atomic<int> waits = 0;
    std::atomic<int> sleeps_before = 0;
    std::thread waiter([&] {
      for (int round = 0; round < rounds; ++round) {
        for (const Waited& call : calls) {
          sleeps_before = waiting.sleeps.load();
          ++waits;
          run(*call.of_ranks[1]);
        }
      }
    });
    int sent = 0;
    for (int round = 0; round < rounds; ++round) {
      for (const Waited& call : calls) {
        ++sent;
        while (waits < sent || waiting.sleeps == sleeps_before) std::this_thread::yield();
        TestClock::now_ns += call.nanos;
        run(*call.of_ranks[0]);
      }
    }
    waiter.join();
    return waiting.shortest_sleep_ns;
  }

 private:
  TwoRanks world_{/*mapped=*/false, absl::Hours(10)};
  std::vector<Call*> calls_;
};

constexpr std::int64_t kLongWait = 1'000'000;

TEST_F(EngineAlarm, ASleepEndsBeforeTheMessageIsDue) {
  // Without an alarm each sleep may last 50 ms.
  EXPECT_LT(ShortestSleep({MakeCall(kLongWait)}, 60), MessageWait::kMaxDueNanos);
}

TEST_F(EngineAlarm, IsSetForACallWhoseWaitsAreLongAlsoWhereThoseForAnotherAreShort) {
  EXPECT_LT(ShortestSleep({MakeCall(kLongWait), MakeCall(0)}, 120), MessageWait::kMaxDueNanos);
}

TEST_F(EngineAlarm, IsNotSetWhereAllWaitsAreShort) {
  EXPECT_GT(ShortestSleep({MakeCall(0), MakeCall(0)}, 60), MessageWait::kMaxDueNanos);
}

}  // namespace
}  // namespace tutti
