// The ways in which a rank of async may end, and what the other ranks then do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
constexpr Rank kVictim = 1;
constexpr char kAsync[] = "async:sync_interval_ms=1";

class AsyncRanks {
 public:
  // Every rank trains until a step fails, and reports the error; the victim trains until it calls `end`.
  explicit AsyncRanks(std::function<void()> end)
      : world_(kRanks, {.timeout = absl::Minutes(5)}, [end](Communicator& comm, const ProcessWorld::Report& report) {
          const Training training = RandomTraining(kAsync, kRanks, 1);
          const std::unique_ptr<Replica> replica = Replica::Make(comm, training.model, kAsync, training.initial);
          if (replica == nullptr) return report("no replica");
          for (int rounds = 0;;) {
            const absl::Status status = replica->Step(training.gradients[0][comm.rank()], training.lr);
            if (!status.ok()) return report(status.ToString());
            if (replica->synchronizer().TakeStatistics().wire_bytes == 0) continue;
            ++rounds;
            if (rounds == 1) report("running");
            // Weights in the second round are those after the first: by then every rank has applied the first round.
            if (rounds == 2 && comm.rank() == kVictim && end != nullptr) end();
          }
        }) {
    for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_EQ(world_.NextLine(rank), "running") << "rank " << rank;
  }

  ProcessWorld& world() { return world_; }

  void ExpectThatAllLearnWhoDied() {
    for (const Rank rank : {0, 2}) {
      EXPECT_THAT(world_.NextLine(rank), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr(absl::StrCat("rank ", kVictim))))
          << "rank " << rank;
    }
  }

 private:
  ProcessWorld world_;
};

TEST(AsyncRanksTest, ARankThatIsKilledIsNamed) {
  AsyncRanks ranks(nullptr);
  ranks.world().Signal(kVictim, SIGKILL);
  ranks.ExpectThatAllLearnWhoDied();
}

TEST(AsyncRanksTest, ARankThatIsKilledBetweenRoundsIsNamedBeforeTheNext) {
  ProcessWorld world(2, {.timeout = absl::Minutes(5)}, [](Communicator& comm, const ProcessWorld::Report& report) {
    const Training training = RandomTraining("async:sync_interval_ms=50000", 2, 1);
    const std::unique_ptr<Replica> replica = Replica::Make(comm, training.model, training.strategy, training.initial);
    if (replica == nullptr) return report("no replica");
    report("running");
    absl::Status status;
    while (status.ok()) status = replica->Step(training.gradients[0][comm.rank()], 0);
    report(status.ToString());
  });
  for (const Rank rank : {0, 1}) EXPECT_EQ(world.NextLine(rank), "running") << "rank " << rank;
  const absl::Time begin = absl::Now();
  world.Signal(kVictim, SIGKILL);
  EXPECT_THAT(world.NextLine(0), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr(absl::StrCat("rank ", kVictim))));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

TEST(AsyncRanksTest, ARankThatExitsInTheMiddleIsNamed) {
  AsyncRanks ranks([] { std::exit(3); });
  ranks.ExpectThatAllLearnWhoDied();
}

TEST(AsyncRanksTest, ARankWhoseExceptionNobodyCatchesIsNamed) {
  AsyncRanks ranks([] { std::terminate(); });
  ranks.ExpectThatAllLearnWhoDied();
}

TEST(AsyncRanksTest, ARankThatIsDoneLeavesTheOthersToTrainOn) {
  ProcessWorld world(kRanks, {.timeout = absl::Minutes(5)}, [](Communicator& comm, const ProcessWorld::Report& report) {
    const Training training = RandomTraining(kAsync, kRanks, 1);
    std::unique_ptr<Replica> replica = Replica::Make(comm, training.model, kAsync, training.initial);
    if (replica == nullptr) return report("no replica");
    for (int step = 0; step < (comm.rank() == kVictim ? 5 : 500); ++step) {
      const absl::Status status = replica->Step(training.gradients[0][comm.rank()], training.lr);
      if (!status.ok()) return report(status.ToString());
    }
    report("done");
  });
  for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_EQ(world.NextLine(rank), "done") << "rank " << rank;
}

}  // namespace
}  // namespace tutti
