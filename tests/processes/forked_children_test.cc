// Processes that a rank forks, as data loaders do, and that end before or after the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"
#include "tests/harness/training.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Sum(Communicator& comm) {
  float value = 1;
  return comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum).Wait();
}

// The body of a rank that forks a child. The child reports what `child` returns; the parent goes on meanwhile and
// afterwards.
ProcessWorld::Body WithChild(std::string (*child)(Communicator&, std::unique_ptr<Communicator>, BoundPlan&)) {
  return [child](Communicator& world, const ProcessWorld::Report& report) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
    if (!group.ok()) return report(group.status().ToString());
    for (int call = 0; call < 10; ++call) {
      if (absl::Status status = Sum(world); !status.ok()) return report(status.ToString());
    }
    float sum = 1;
    absl::StatusOr<BoundPlan> bound =
        world.Bind({.collective = Collective::kAllReduce, .count = 1, .in_place = true}, {.in = &sum, .out = &sum});
    if (!bound.ok()) return report(bound.status().ToString());
    const pid_t pid = fork();
    if (pid == 0) {
      report(child(world, *std::move(group), *bound));
      exit(0);  // with static destructors
    }
    for (int call = 0; call < 100; ++call) {
      if (absl::Status status = Sum(**group); !status.ok()) return report(status.ToString());
    }
    int how = 0;
    waitpid(pid, &how, 0);
    for (int call = 0; call < 100; ++call) {
      if (absl::Status status = Sum(world); !status.ok()) return report(status.ToString());
    }
    report(absl::StrCat("child ended with ", how));
  };
}

void ExpectParentsUndisturbed(const ProcessWorld::Body& body, const std::string& words) {
  for (const CommunicatorOptions::Mapping mapping :
       {CommunicatorOptions::Mapping::kAuto, CommunicatorOptions::Mapping::kNever}) {
    ProcessWorld world(2, {.timeout = absl::Minutes(1), .mapping = mapping}, body);
    for (const Rank rank : {0, 1}) {
      EXPECT_THAT(world.NextLine(rank), HasSubstr(words)) << "rank " << rank;
      EXPECT_EQ(world.NextLine(rank), "child ended with 0") << "rank " << rank;
    }
  }
}

TEST(ForkedChildrenTest, MayDestroyWhatTheyInherited) {
  ExpectParentsUndisturbed(WithChild([](Communicator&, std::unique_ptr<Communicator> group, BoundPlan&) -> std::string {
                             group.reset();
                             return "destroyed";
                           }),
                           "destroyed");
}

TEST(ForkedChildrenTest, AreToldThatTheCommunicatorIsNotTheirs) {
  ExpectParentsUndisturbed(
      WithChild([](Communicator& world, std::unique_ptr<Communicator> group, BoundPlan& bound) -> std::string {
        world.Abort(absl::InternalError("of a child"));
        const absl::Status started = bound.Start({}).Wait();
        const absl::Status begun = bound.Start({.caller_drives = true}).Wait();
        float other = 1;
        const absl::Status moved = bound.Rebind({.in = &other, .out = &other});
        if (!absl::IsFailedPrecondition(started) || begun != started || moved != started) {
          return absl::StrCat("codes ", started.raw_code(), ", ", begun.raw_code(), " and ", moved.raw_code());
        }
        return absl::StrCat(Sum(world).ToString(), group->Allocate(64).status().ToString(),
                            group->Split(0, 0).status().ToString());
      }),
      "not to a forked child");
}

// A call of the parent that is under way at the fork never ends in the child.
TEST(ForkedChildrenTest, AreToldOfCallsOfTheirParentAtOnce) {
  const ProcessWorld::Body body = [](Communicator& world, const ProcessWorld::Report& report) {
    float number = 1;
    if (world.rank() == 1) {
      absl::Status status = world.Recv(&number, 1, DType::kF32, 0).Wait();
      status.Update(world.Send(&number, 1, DType::kF32, 0).Wait());
      return report(status.ok() ? "sent" : status.ToString());
    }
    Work received = world.Recv(&number, 1, DType::kF32, 1);
    const pid_t pid = fork();
    if (pid == 0) {
      received.AwaitElsewhere();
      received.OnDone([&](const absl::Status& status) { report(status.ToString()); });
      _exit(0);
    }
    int how = 0;
    waitpid(pid, &how, 0);
    absl::Status status = world.Send(&number, 1, DType::kF32, 1).Wait();
    status.Update(received.Wait());
    report(status.ok() ? absl::StrCat("child ended with ", how) : status.ToString());
  };
  ProcessWorld world(2, {.timeout = absl::Minutes(1)}, body);
  EXPECT_THAT(world.NextLine(0), HasSubstr("not to a forked child"));
  EXPECT_EQ(world.NextLine(0), "child ended with 0");
  EXPECT_EQ(world.NextLine(1), "sent");
}

// Rank 0 has a snapshot that waits for that of rank 1, so the child finds a round under way that nobody ends there.
TEST(ForkedChildrenTest, AreToldThatRoundsInTheBackgroundAreNotTheirs) {
  const ProcessWorld::Body body = [](Communicator& world, const ProcessWorld::Report& report) {
    const Training training = RandomTraining("async:sync_interval_ms=400", 2, 1);
    std::unique_ptr<Replica> replica = Replica::Make(world, training.model, training.strategy, training.initial);
    if (replica == nullptr) return report("no replica");
    Synchronizer& synchronizer = replica->synchronizer();
    absl::Status status;
    const absl::Time end = absl::Now() + absl::Milliseconds(600);
    while (absl::Now() < end && status.ok() && world.rank() == 0) status = replica->Step(training.gradients[0][0], 0);
    if (world.rank() == 1) absl::SleepFor(absl::Milliseconds(800));
    const pid_t pid = world.rank() == 0 ? fork() : -1;
    if (pid == 0) {
      alarm(30);
      synchronizer.Pause();
      synchronizer.Resume();
      synchronizer.Stop();
      for (const absl::Status& told :
           {replica->Step(training.gradients[0][0], training.lr), synchronizer.Flush(), synchronizer.Restart()}) {
        report(told.ToString());
      }
      replica = nullptr;
      _exit(0);
    }
    int how = 0;
    if (pid > 0) waitpid(pid, &how, 0);
    status.Update(synchronizer.Flush());
    report(status.ok() ? absl::StrCat("child ended with ", how) : status.ToString());
  };
  ProcessWorld world(2, {.timeout = absl::Minutes(1)}, body);
  EXPECT_THAT(world.NextLine(0), HasSubstr("not to a forked child"));
  EXPECT_THAT(world.NextLine(0), HasSubstr("not to a forked child"));
  EXPECT_EQ(world.NextLine(0), "OK");
  EXPECT_EQ(world.NextLine(0), "child ended with 0");
  EXPECT_EQ(world.NextLine(1), "child ended with 0");
}

// Each rank is a node of its own.
TEST(ForkedChildrenTest, DoNotHideTheDeathOfTheirParentFromOtherNodes) {
  const auto body = [](Communicator& world, const ProcessWorld::Report& report) {
    absl::Status status = Sum(world);
    const pid_t pid = world.rank() == 1 ? fork() : 0;
    if (pid == 0 && world.rank() == 1) {
      alarm(60);
      pause();
    }
    report(absl::StrCat(pid));
    while (status.ok()) status = Sum(world);
    report(status.ToString());
  };
  ProcessWorld world(2, {.timeout = absl::Minutes(5)}, body, nullptr, /*ranks_per_node=*/1);
  ASSERT_EQ(world.NextLine(0), "0");
  pid_t child = 0;
  ASSERT_TRUE(absl::SimpleAtoi(world.NextLine(1), &child));
  world.Signal(1, SIGKILL);
  // Not by UCX, which tells a minute later of an "Endpoint timeout".
  EXPECT_THAT(world.NextLine(0), AllOf(HasSubstr("UNAVAILABLE: rank 1 died"), Not(HasSubstr("timeout"))));
  EXPECT_EQ(kill(child, SIGKILL), 0) << "the child lived";
}

}  // namespace
}  // namespace tutti
