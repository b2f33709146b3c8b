// The engine alone: deadlines, health, blame and failure, with an executor, a transport and a clock of the test's.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A run that moves only when the test says so.
class ScriptedRun final : public Run {
 public:
  using Run::Run;

  absl::Status SetBuffers(const void*, void*, void*) override { return absl::OkStatus(); }
  std::int64_t held_bytes() const override { return 0; }
  absl::Status WaitOnStream(CUstream_st*) override { return absl::UnimplementedError("no stream"); }
  bool started() const override { return true; }
  std::uint32_t steps_left() const override { return steps; }
  std::optional<Blocker> FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const override {
    const Blocker blocker{.peer = 1, .what = "recv", .step = 3};
    return matches(blocker) ? std::optional(blocker) : std::nullopt;
  }
  absl::Span<std::byte> output_lent_to_peers() const override { return lent; }

  std::uint32_t steps = 5;
  absl::Span<std::byte> lent;
};

class ScriptedExecutor final : public Executor {
 public:
  absl::Status MakeRunnable(const Program&) const override { return absl::OkStatus(); }
  std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program, void*) override {
    return std::make_unique<ScriptedRun>(call, channel, program);
  }
  void Add(Run& run) override {
    if (!run.channel.failure.begun) {
      EXPECT_TRUE(run.channel.Admit(run));
    }
    runs.push_back(&run);
  }
  bool RunAtOnce(Run& run) override {
    Add(run);
    return false;
  }
  Polled Poll() override {
    ++polls;
    if (!failure.ok() && !runs.empty() && !runs.front()->channel.failure.begun) return Polled::kFailed;
    if (!(ends_next || ends_last) || runs.empty()) return Polled::kNothing;
    EndRun(ends_next ? *runs.front() : *runs.back(), absl::OkStatus());
    ends_next = ends_last = false;
    return Polled::kMoved;
  }
  const absl::Status& error() const override { return failure; }
  Channel& failed_channel() const override { return runs.front()->channel; }
  std::vector<Rank> MessagePeers(const Channel& channel) const override {
    const std::size_t count = Uses(channel) && has_message ? messages.load() : 0;
    return std::vector<Rank>(count, Rank{1});
  }
  bool HasPending(const Channel&) const override { return false; }
  void Abandon(Channel&, const absl::Status&) override {}
  bool HasLetGo(const Channel&) const override { return true; }
  void End(Channel& channel, const absl::Status& cause) override {
    const std::vector<Run*> before = runs;
    for (Run* const run : before) {
      if (&run->channel == &channel) EndRun(*run, cause);
    }
  }
  bool Uses(const Channel& channel) const override {
    return std::any_of(runs.begin(), runs.end(), [&](const Run* run) { return &run->channel == &channel; });
  }
  bool idle() const override { return runs.empty(); }
  bool needs_driver() const override { return !callers_drive && !runs.empty(); }
  bool waits_for_messages() const override { return by_messages && !runs.empty(); }
  bool waits_for_signals() const override { return !by_messages && !runs.empty(); }
  bool waits_for_completions() const override { return false; }
  bool all_in_background() const override { return in_background; }
  absl::Span<Run* const> active() const override { return runs; }
  std::int64_t wire_bytes() const override { return 0; }
  std::int64_t staged_bytes() const override { return 0; }
  std::int64_t calls() const override { return 0; }

  std::vector<Run*> runs;
  absl::Status failure;
  std::atomic<bool> has_message = false;  // whether each channel with runs has messages under way with rank 1
  std::atomic<std::size_t> messages = 1;  // how many of them
  std::atomic<bool> ends_next = false;    // atomic, because the test sets it while the engine's thread may drive
  std::atomic<bool> ends_last = false;
  bool callers_drive = false;
  bool by_messages = false;
  bool in_background = false;
  std::atomic<int> polls = 0;

 private:
  void EndRun(Run& run, const absl::Status& status) {
    runs.erase(std::find(runs.begin(), runs.end(), &run));
    run.channel.GiveUp(run);
    run.watch = {};
    run.call.Finish(status);
  }
};

constexpr CallOptions kDrives = {.caller_drives = true};
constexpr std::int64_t kSecond = 1'000'000'000;

class EngineTest : public ::testing::Test {
 public:
  ~EngineTest() override {
    TestClock::step_ns = 0;
    for (Call* const call : calls_) call->Release();
  }

 protected:
  EngineTest() { TestClock::step_ns = 0; }
  Engine& engine() { return *world_.ranks[0].engine; }
  Channel& channel() { return *world_.ranks[0].channel; }
  ScriptedExecutor& executor() { return static_cast<ScriptedExecutor&>(*world_.ranks[0].executor); }
  TestTransport& transport() { return *world_.ranks[0].transport; }

  // A long call is not begun while it is submitted.
  Call& NewCall(std::int64_t count = 8) {
    return *calls_.emplace_back(
        world_.NewCall(0, {.collective = Collective::kAllReduce, .count = count, .in_place = true}, "direct"));
  }
  absl::Status Run(Call& call, const CallOptions& options = kDrives) {
    const std::uint32_t run = call.Submit(options);
    return call.Wait(run, false, kNeverNanos);
  }

  TwoRanks world_{/*mapped=*/true, absl::Seconds(10), [](Transport&, Presence&) -> std::unique_ptr<Executor> {
                    return std::make_unique<ScriptedExecutor>();
                  }};
  std::vector<Call*> calls_;
};

TEST_F(EngineTest, ACallEndsWhenItsExecutorSaysSo) {
  executor().ends_next = true;
  EXPECT_EQ(Run(NewCall()), absl::OkStatus());
  EXPECT_EQ(channel().sticky().Get(), absl::OkStatus());
}

TEST_F(EngineTest, ACallThatWaitsTooLongNamesRankCallAndStep) {
  TestClock::step_ns = kSecond;
  const absl::Status status = Run(NewCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("rank 0 waited 10s for rank 1 in call 0, all_reduce:direct"), HasSubstr("step 3 (recv)")));
  EXPECT_EQ(channel().sticky().Get(), status);
  EXPECT_EQ(Run(NewCall()), status) << "later calls end likewise";
}

TEST_F(EngineTest, ACallMayHaveATimeoutOfItsOwn) {
  Call& patient = NewCall();
  patient.Submit({.timeout = absl::Hours(5), .caller_drives = true});
  TestClock::step_ns = kSecond;
  const std::int64_t begin_ns = TestClock::now_ns;
  const absl::Status status = Run(NewCall(), {.timeout = absl::Seconds(20), .caller_drives = true});
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 waited 20s for rank 1 in call 1"));
  EXPECT_GE(TestClock::now_ns - begin_ns, 20 * kSecond);
  EXPECT_LT(TestClock::now_ns - begin_ns, 40 * kSecond);
}

// A caller waits for its Recv, then for its Send: between the two nobody else needs to drive.
TEST_F(EngineTest, NoThreadIsWokenForACallWhoseCallerWillDrive) {
  Call& first = NewCall();
  Call& second = NewCall();
  const std::uint32_t run = first.Submit(kDrives);
  const std::uint32_t later_run = second.Submit(kDrives);
  const std::atomic<std::uint32_t>& wakes = engine().options().presence[0]->thread_calls;
  const std::uint32_t before = wakes;
  executor().callers_drive = true;
  executor().ends_next = true;
  EXPECT_EQ(first.Wait(run, false, kNeverNanos), absl::OkStatus());
  EXPECT_EQ(wakes, before);
  executor().callers_drive = false;  // somebody waits for the other call, or has made no promise
  Call& third = NewCall();
  executor().ends_last = true;
  EXPECT_EQ(Run(third), absl::OkStatus());
  EXPECT_GT(wakes, before);
  executor().ends_next = true;
  EXPECT_EQ(second.Wait(later_run, false, kNeverNanos), absl::OkStatus());
}

// No thread makes another call, and the engine's thread does not look around by itself.
TEST_F(EngineTest, TheEnginesThreadSendsTheRestOfAMessageWhoseSendHasEnded) {
  transport().held_for = 50;
  executor().ends_next = true;
  EXPECT_EQ(Run(NewCall(/*count=*/1 << 20)), absl::OkStatus());
  for (int ms = 0; transport().held_for > 0 && ms < 60'000; ++ms) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(transport().held_for, 0);
  EXPECT_GT(transport().sleeps, 0) << "it sleeps where the transport wakes it";
}

// A call that runs at once looks after the transport now and then, which may answer peers.
TEST_F(EngineTest, TheEnginesThreadSendsWhatACallThatRanAtOnceHasLeft) {
  transport().held_for = 50;
  executor().ends_next = true;
  Call& call = NewCall();
  EXPECT_TRUE(call.done(call.Submit(kDrives)));
  for (int ms = 0; transport().held_for > 0 && ms < 20'000; ++ms) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(transport().held_for, 0);
}

TEST_F(EngineTest, TheClockOfACallStartsWhenADriverLooks) {
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  TestClock::now_ns += 3600 * kSecond;  // an hour passes in which nobody drives
  executor().ends_next = true;
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::OkStatus());
}

// The thread that drives a call in the background sleeps, and when it wakes up takes all that has arrived.
TEST_F(EngineTest, InTheBackgroundNobodyPolls) {
  executor().by_messages = executor().in_background = true;
  int naps = 0;
  transport().on_drain = [&] {
    if (++naps == 3) executor().ends_next = true;
  };
  EXPECT_EQ(Run(NewCall(), {.caller_drives = true, .background = true}), absl::OkStatus());
  EXPECT_EQ(naps, 3);
  EXPECT_LE(executor().polls, 2 * naps + 2) << "one before it sleeps, one when it wakes up";
}

// The number of polls that rank 0 makes before it sleeps, on a processor of its own or on one where rank 1 waited last.
int PollsBeforeSleep(bool peer_shares_processor) {
  const auto make = [](Transport&, Presence&) { return std::make_unique<ScriptedExecutor>(); };
  TwoRanks world(/*mapped=*/true, absl::Seconds(10), make, /*may_spin=*/true);
  auto& executor = static_cast<ScriptedExecutor&>(*world.ranks[0].executor);
  world.ranks[1].presence->processor = peer_shares_processor ? sched_getcpu() : -1;
  Call* const call = world.NewCall(0, {.collective = Collective::kBarrier}, "direct");
  const std::uint32_t run = call->Submit(kDrives);
  int polls = 0;
  std::thread watcher([&] {
    while (world.ranks[0].presence->sleeping == kAwake) std::this_thread::yield();
    polls = executor.polls;
    executor.ends_next = true;
  });
  EXPECT_EQ(call->Wait(run, false, kNeverNanos), absl::OkStatus());
  watcher.join();
  call->Release();
  return polls;
}

TEST(EngineOnASharedProcessor, DoesNotSpin) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t here;
  CPU_ZERO(&here);
  CPU_SET(sched_getcpu(), &here);
  ASSERT_EQ(sched_setaffinity(0, sizeof(here), &here), 0);
  EXPECT_GT(PollsBeforeSleep(/*peer_shares_processor=*/false), 1000);
  EXPECT_LT(PollsBeforeSleep(/*peer_shares_processor=*/true), 200);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

// A driver that waits for signals and holds what it has sent sleeps in its transport, where the test sees it sleep, and
// polls before it sleeps as it is told to: about twice, or a hundred times where somebody waits. What a test's hooks
// count outlives the test, as the hooks do: the engine ends after the test.
constexpr int kHoldsForever = 1 << 30;
constexpr int kManyPolls = 50;

TEST_F(EngineTest, ADriverThatIsAboutToSleepSeesThatSomebodyWaitsElsewhere) {
  transport().held_for = kHoldsForever;
  Call& call = NewCall();
  struct Seen {
    std::atomic<int> checks = 0, polls = 0;
  };
  const auto seen = std::make_shared<Seen>();
  transport().on_check = [this, seen, &call] {
    if (++seen->checks > 1) return;
    call.AwaitElsewhere(1);
    seen->polls = -executor().polls;
  };
  transport().on_sleep = [this, seen] {
    if (seen->checks > 0 && seen->polls <= 0) seen->polls += executor().polls;
  };
  const std::uint32_t run = call.Submit({});
  while (seen->polls <= 0) std::this_thread::yield();
  EXPECT_GT(seen->polls, kManyPolls);
  executor().ends_next = true;
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::OkStatus());
  transport().held_for = 0;
}

TEST_F(EngineTest, TheEndOfARunEndsNoEagerWaitForTheNextRun) {
  transport().held_for = kHoldsForever;
  transport().sleeps_until_woken = true;
  Call& call = NewCall();
  struct Seen {
    std::atomic<int> wakes = 0;
    std::latch woken{1}, goes_on{1};
  };
  const auto seen = std::make_shared<Seen>();
  const std::uint32_t first = call.Submit({});
  while (transport().sleeps == 0) std::this_thread::yield();
  executor().ends_next = true;
  transport().on_wake = [seen] {
    if (++seen->wakes > 1) return;
    seen->woken.count_down();
    seen->goes_on.wait();
  };
  std::thread waits_for_first([&] { call.AwaitElsewhere(first); });
  seen->woken.wait();
  while (!call.done(first)) std::this_thread::yield();
  const std::uint32_t second = call.Submit({});
  call.AwaitElsewhere(second);
  seen->goes_on.count_down();
  waits_for_first.join();
  // The polls of the engine's thread from one sleep to the next. It drives anew, because GoneFrom takes its seat.
  const auto polls = [&] {
    const int before = executor().polls, sleeps = transport().sleeps;
    engine().GoneFrom(channel());
    while (transport().sleeps == sleeps) std::this_thread::yield();
    return executor().polls - before;
  };
  polls();
  int most = 0;
  for (int i = 0; i < 10; ++i) most = std::max(most, polls());
  EXPECT_GT(most, kManyPolls);
  executor().ends_next = true;
  EXPECT_EQ(call.Wait(second, false, kNeverNanos), absl::OkStatus());
  transport().held_for = 0;
}

TEST_F(EngineTest, WaitMayEndBeforeTheCall) {
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  TestClock::step_ns = kSecond / 10;
  const absl::Status status = call.Wait(run, false, TestClock::now_ns + kSecond);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(
      std::string(status.message()),
      "rank 0 waited for rank 1 in call 0, all_reduce:direct all_reduce f32 sum count=8 in_place, at step 3 (recv); "
      "the call has not ended in the time given to Wait, and goes on");
  EXPECT_FALSE(call.done(run));
  EXPECT_EQ(channel().sticky().Get(), absl::OkStatus());
  executor().ends_next = true;
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::OkStatus());
}

TEST_F(EngineTest, ADeadRankEndsEveryCall) {
  Call& first = NewCall();
  Call& second = NewCall();
  const std::uint32_t run = first.Submit(kDrives);
  transport().losses = {{1, absl::UnavailableError("rank 1 died")}};
  TestClock::step_ns = kSecond;
  EXPECT_EQ(Run(second), absl::UnavailableError("rank 1 died"));
  EXPECT_TRUE(first.done(run));
  EXPECT_EQ(first.result(), absl::UnavailableError("rank 1 died"));
}

// When a rank is first seen to have left, messages that it had sent before may still be unread.
TEST_F(EngineTest, ACallThatMovesDoesNotMissARankThatHasLeft) {
  transport().left = 1;
  TestClock::step_ns = kSecond / 100;
  const absl::Status status = Run(NewCall());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 has left"), HasSubstr("without call 0"), HasSubstr("for which rank 0 waits")));
}

// An answer of the transport may take as long as all that has arrived takes to be taken in.
TEST_F(EngineTest, ACheckOfManyCallsAsksOnceWhetherARankHasLeft) {
  for (int i = 0; i < kLanes; ++i) NewCall().Submit(kDrives);
  const auto checks = std::make_shared<std::atomic<int>>(0);
  transport().on_check = [checks] { ++*checks; };
  TestClock::step_ns = kSecond / 1000;
  const absl::Status status = calls_[0]->Wait(1, false, TestClock::now_ns + kSecond / 5);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GT(transport().asked, 0);
  EXPECT_LE(transport().asked, *checks);
  TestClock::step_ns = 0;
  engine().Abort(channel(), absl::AbortedError("enough"));
}

// A rank may leave because its calls in another group failed; the error then names that loss, too.
TEST_F(EngineTest, ARankThatLeavesAfterALossOutsideTheGroupIsToldWithTheLoss) {
  transport().left = 1;
  transport().losses = {{2, absl::UnavailableError("rank 2 died")}};
  TestClock::step_ns = kSecond / 100;
  EXPECT_THAT(Run(NewCall()).ToString(), AllOf(HasSubstr("UNAVAILABLE: rank 1 has left"),
                                               HasSubstr("for which rank 0 waits; known, too: rank 2 died")));
}

TEST_F(EngineTest, RanksAreGoneFromAChannelOnceTheyAreLostOrHaveLeft) {
  EXPECT_THAT(engine().GoneFrom(channel()), IsEmpty());
  transport().losses = {{1, absl::UnavailableError("rank 1 died")}};
  EXPECT_THAT(engine().GoneFrom(channel()), ElementsAre(1));
  transport().losses.clear();
  transport().left = 1;
  EXPECT_THAT(engine().GoneFrom(channel()), ElementsAre(1));
}

TEST_F(EngineTest, AnErrorOfTheExecutorIsKept) {
  executor().failure = absl::DataLossError("a message was damaged");
  EXPECT_EQ(Run(NewCall()), absl::DataLossError("a message was damaged"));
  EXPECT_EQ(world_.ranks[0].control->failure.code, static_cast<int>(absl::StatusCode::kDataLoss)) << "peers see it";
  EXPECT_EQ(world_.ranks[1].control->failed_by, 1);
}

TEST_F(EngineTest, TheFirstErrorStays) {
  engine().Abort(channel(), absl::AbortedError("first"));
  engine().Abort(channel(), absl::AbortedError("second"));
  EXPECT_EQ(Run(NewCall()), absl::AbortedError("first"));
  EXPECT_EQ(channel().sticky().Get(), absl::AbortedError("first"));
}

TEST_F(EngineTest, APeerTellsThatItHasGivenTheGroupUp) {
  transport().notes = {{.from = 1, .group = 7, .cause = absl::AbortedError("enough")}};
  TestClock::step_ns = kSecond / 10;
  EXPECT_EQ(Run(NewCall()), absl::AbortedError("enough (told by rank 1)"));
}

TEST_F(EngineTest, ANoteAboutAnotherGroupOrOfAStrangerEndsNothing) {
  transport().notes = {{.from = 1, .group = 8, .cause = absl::AbortedError("enough")},
                       {.from = 99, .group = 7, .cause = absl::AbortedError("enough")}};
  TestClock::step_ns = kSecond;
  EXPECT_EQ(Run(NewCall()).code(), absl::StatusCode::kDeadlineExceeded);
}

// Peers send notes about a group that this rank is about to open: of many notes the cause of a failure is kept.
TEST_F(EngineTest, TheCauseOfAFailureOutlastsManyDepartures) {
  transport().notes.assign(10, {.from = 1, .group = 9, .cause = absl::AbortedError("enough")});
  transport().notes.resize(1000, {.from = 1, .group = 9, .cause = absl::OkStatus()});
  TestClock::step_ns = kSecond;
  EXPECT_EQ(Run(NewCall()).code(), absl::StatusCode::kDeadlineExceeded);
  TestRank& rank = world_.ranks[0];
  std::vector<Channel::Peer> peers(2);
  for (Rank peer = 0; peer < 2; ++peer) {
    peers[peer].world_rank = peer;
    peers[peer].channel = 9;
    peers[peer].endpoint = &transport().endpoint(peer);
  }
  ControlBlock* const block = rank.blocks->Open().value();
  peers[0].region = transport().region();
  peers[0].control = block;
  Channel opened(engine(), rank.arena, rank.lent, rank.blocks, 0, std::move(peers));
  EXPECT_EQ(opened.sticky().Get(), absl::AbortedError("enough (told by rank 1)"));
  engine().Close(opened);
}

TEST_F(EngineTest, APeerTellsThatItHasLeftTheGroup) {
  transport().notes = {{.from = 1, .group = 7, .cause = absl::OkStatus()}};
  TestClock::step_ns = kSecond / 100;
  EXPECT_THAT(Run(NewCall()).ToString(), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 has left")));
}

TEST_F(EngineTest, WhoseLastMessagesAreStillOnTheirWayHasNotLeft) {
  transport().notes = {{.from = 1, .group = 7, .cause = absl::OkStatus()}};
  transport().receiving = true;
  TestClock::step_ns = kSecond;
  EXPECT_EQ(Run(NewCall()).code(), absl::StatusCode::kDeadlineExceeded);
}

// Survivors of a failure make a new group, for which some of them wait longer than others.
TEST_F(EngineTest, WhoHasGivenTheGroupUpIsNotGone) {
  transport().notes = {{.from = 1, .group = 7, .cause = absl::AbortedError("enough")}};
  TestClock::step_ns = kSecond / 10;
  EXPECT_EQ(Run(NewCall()), absl::AbortedError("enough (told by rank 1)"));
  EXPECT_THAT(engine().GoneFrom(channel()), IsEmpty());
}

TEST_F(EngineTest, NobodyIsGivenUpWhileMessagesComeBack) {
  executor().has_message = true;
  executor().messages = 25;
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  engine().Abort(channel(), absl::AbortedError("enough"));
  while (executor().messages > 0) {  // longer than the time after which the transport would be shut down
    absl::SleepFor(absl::Milliseconds(100));
    --executor().messages;
  }
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::AbortedError("enough"));
  EXPECT_THAT(transport().losses, IsEmpty());
  EXPECT_FALSE(transport().shut_down);
}

TEST_F(EngineTest, ACallEndsWhenItsMessagesAreBack) {
  executor().has_message = true;
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  engine().Abort(channel(), absl::AbortedError("enough"));
  TestClock::step_ns = kSecond / 100;
  EXPECT_EQ(call.Wait(run, false, TestClock::now_ns + kSecond).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(call.done(run)) << "a peer may still read the message";
  executor().has_message = false;
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::AbortedError("enough"));
}

// The engine first gives up the peer that does not take the message, then the transport: nothing hangs.
TEST_F(EngineTest, AMessageThatIsNeverTakenEndsWithTheTransport) {
  executor().has_message = true;
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  engine().Abort(channel(), absl::AbortedError("enough"));
  transport().on_shutdown = [&] { executor().has_message = false; };
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::AbortedError("enough"));
  ASSERT_EQ(transport().losses.size(), 1u);
  EXPECT_EQ(transport().losses[0].peer, 1);
  EXPECT_THAT(transport().losses[0].cause.ToString(), HasSubstr("rank 1 has taken no messages of rank 0"));
}

// An output that shares its page with other memory stays in the reach of peers: no page of it may be secluded.
TEST_F(EngineTest, NothingElseComesToAnOutputToWhichAStoppedPeerMayWrite) {
  Arena& arena = *world_.ranks[0].arena;
  absl::StatusOr<Buffer> output = arena.Allocate(1024);
  ASSERT_TRUE(output.ok()) << output.status();
  const std::byte* const data = output->data();
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  static_cast<ScriptedRun*>(executor().runs.front())->lent = absl::MakeSpan(output->data(), 1024);
  world_.ranks[1].presence->touching = 1;  // rank 1 is in the middle of a step
  engine().Abort(channel(), absl::AbortedError("enough"));
  TestClock::step_ns = kSecond / 100;
  EXPECT_EQ(call.Wait(run, false, kNeverNanos), absl::AbortedError("enough"));
  world_.ranks[1].presence->touching = 2;

  output = arena.Allocate(1);  // frees the output
  const absl::StatusOr<Buffer> next = arena.Allocate(1024);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->data() >= data + 1024 || next->data() + 1024 <= data);
}

TEST_F(EngineTest, ACallThatItsCallerOnlyLooksAtGoesOn) {
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  executor().ends_next = true;
  while (!call.done(run)) {
    // The status is OK where the call ends between the two looks.
    const absl::Status looked = call.Wait(run, false, TestClock::now_ns);
    EXPECT_TRUE(looked.ok() || absl::IsDeadlineExceeded(looked)) << looked;
  }
  EXPECT_EQ(call.result(), absl::OkStatus());
}

TEST_F(EngineTest, TheClockOfAReceiveStartsWhenSomebodyWaits) {
  Call& receive =
      *calls_.emplace_back(world_.NewCall(0, {.collective = Collective::kRecv, .count = 8, .root = 1}, "message"));
  const std::uint32_t run = receive.Submit(kDrives);
  Call& other = NewCall();
  TestClock::step_ns = kSecond;
  EXPECT_EQ(other.Wait(other.Submit(kDrives), false, TestClock::now_ns + 5 * kSecond).code(),
            absl::StatusCode::kDeadlineExceeded);
  executor().ends_last = true;  // before the engine's thread, which may drive now, sees the time
  TestClock::now_ns += 3600 * kSecond;
  while (!other.done(1)) (void)other.Wait(1, false, TestClock::now_ns + kSecond);
  EXPECT_EQ(other.result(), absl::OkStatus()) << "the receive has not run out of time";
  EXPECT_THAT(receive.Wait(run, false, kNeverNanos).ToString(), HasSubstr("rank 0 waited 10s for rank 1"));
}

TEST_F(EngineTest, ClosingAChannelEndsItsCalls) {
  Call& call = NewCall();
  const std::uint32_t run = call.Submit(kDrives);
  TwoRanks::Close(world_.ranks[0]);
  EXPECT_TRUE(call.done(run));
  EXPECT_EQ(call.result().code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace tutti
