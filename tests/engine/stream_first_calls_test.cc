// The first calls of a communicator on a stream, in which NCCL waits for the peers: the driver waits for nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/engine/capturing_stream.h"
#include "tests/engine/stream_results.h"
#include "tests/engine/stream_world.h"
#include "tests/harness/fake_nccl.h"
#include "tests/harness/native_machine.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// All_reduces by one native collective, or by messages.
class StreamFirstCallsTest : public testing::TestWithParam<bool> {
 protected:
  static std::vector<Plan> PlansOf(int size) {
    const CollectiveSpec spec = {.collective = Collective::kAllReduce, .count = 8, .in_place = true};
    const Schedule& schedule = **FindSchedule(Collective::kAllReduce, GetParam() ? "native" : "ring");
    std::vector<Plan> plans;
    for (Rank rank = 0; rank < size; ++rank) {
      plans.push_back(BuildPlan(schedule, spec, rank, size, WithNative(kWhole)).value());
    }
    return plans;
  }
};
INSTANTIATE_TEST_SUITE_P(By, StreamFirstCallsTest, testing::Bool(),
                         [](const auto& native) { return native.param ? "native" : "messages"; });

// A watch that ends the first wait of the thread that asks for it, once `call` has ended and the peer is done as well.
class LateInterrupt {
 public:
  explicit LateInterrupt(const Call* call) {
    call_ = call;
    peer_may_call = peer_is_done = false;
    SetWaitWatch([] {
      if (!std::exchange(is_asked, false)) return absl::OkStatus();
      peer_may_call = true;
      while (!call_.load()->done(1) || !peer_is_done) absl::SleepFor(absl::Milliseconds(1));
      return absl::CancelledError("Ctrl-C was pressed");
    });
  }
  ~LateInterrupt() { SetWaitWatch(nullptr); }

  static inline thread_local bool is_asked = false;
  static inline std::atomic<bool> peer_may_call;
  static inline std::atomic<bool> peer_is_done;

 private:
  static inline std::atomic<const Call*> call_;
};

TEST_P(StreamFirstCallsTest, TheDriverServesOthersWhileNcclWaits) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansOf(2));
  const int non_blocking = FakeNccl::NonBlockingGroups();
  const FakeMemory first(0, 32);
  const FakeMemory second(1, 32);
  std::fill_n(first.floats(), 8, 1.0f);
  std::fill_n(second.floats(), 8, 2.0f);
  // Submitting, waiting for a time, and asking for the driver's seat all return, though rank 1 has not called.
  Work work = world.At(0).Start(programs[0], {.out = first.data()});
  EXPECT_EQ(work.Wait(absl::Now() + absl::Milliseconds(20)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(world.At(0).engine->GoneFrom(*world.At(0).channel).empty());
  EXPECT_FALSE(work.done());
  Work other = world.At(1).Start(programs[1], {.out = second.data()});
  EXPECT_EQ(work.Wait(), absl::OkStatus());
  EXPECT_EQ(other.Wait(), absl::OkStatus());
  EXPECT_EQ(first.floats()[7], 3.0f);
  EXPECT_EQ(second.floats()[7], 3.0f);
  EXPECT_EQ(FakeNccl::NonBlockingGroups(), non_blocking);
}

TEST_P(StreamFirstCallsTest, ARankThatNeverCallsIsNamedAtTheDeadline) {
  const int misuses = FakeNccl::Misuses();
  StreamWorld world(3, StreamWorld::On::kStreams, absl::Seconds(2));
  const auto programs = world.Programs(PlansOf(3));
  std::latch both(2);
  world.OnEveryRank([&](StreamRank& rank) {
    if (rank.rank == 1) return;
    const FakeMemory memory(rank.rank, 32);
    both.arrive_and_wait();  // a rank that comes much later than the other one would be named
    const absl::Status status =
        rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  });
  EXPECT_EQ(FakeNccl::Misuses(), misuses) << "NCCL has let go what was aborted";
}

TEST_P(StreamFirstCallsTest, AnAbortEndsWhatWaitsInNccl) {
  const int misuses = FakeNccl::Misuses();
  StreamWorld world(2);
  const auto programs = world.Programs(PlansOf(2));
  const FakeMemory memory(0, 32);
  Work work = world.At(0).Start(programs[0], {.out = memory.data()});
  world.At(0).engine->Abort(*world.At(0).channel, absl::AbortedError("enough"));
  EXPECT_THAT(std::string(work.Wait().message()), HasSubstr("enough"));
  EXPECT_EQ(FakeNccl::Misuses(), misuses);
}

// A rank that gives its channel up tells the others, which wait in NCCL.
TEST_P(StreamFirstCallsTest, ThePeersErrorEndsWhatWaitsInNccl) {
  StreamWorld world(3);
  const auto programs = world.Programs(PlansOf(3));
  world.OnEveryRank([&](StreamRank& rank) {
    if (rank.rank == 1) {
      rank.engine->Abort(*rank.channel, absl::UnavailableError("rank 1 has had enough"));
      return;
    }
    const FakeMemory memory(rank.rank, 32);
    const absl::Status status =
        rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has had enough"));
  });
}

// A captured call, too, is enqueued by a thread of its own, and returns from Submit when it is.
TEST_P(StreamFirstCallsTest, ACapturedCallMayBeTheFirst) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansOf(2));
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(rank.rank, 32);
    CapturingStream stream(rank);
    const FakeGraph graph = stream.Capture(programs[static_cast<std::size_t>(rank.rank)], memory.data());
    std::fill_n(memory.floats(), 8, 1.0f);
    stream.Launch(graph);
    stream.Synchronize();
    EXPECT_EQ(memory.floats()[7], 2.0f);
  });
}

// The call may be on the GPU all the same.
TEST_P(StreamFirstCallsTest, AStreamWaitsForACallAlsoWhereAWatchEndsTheWaitForItsEnqueueing) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansOf(2));
  const FakeMemory memory(0, 32);
  Call* const call = Call::Create(programs[0], *world.At(0).channel);
  ASSERT_EQ(call->SetBuffers(nullptr, memory.data(), nullptr), absl::OkStatus());
  const LateInterrupt interrupt(call);
  world.OnEveryRank([&](StreamRank& rank) {
    if (rank.rank == 1) {
      const FakeMemory other(1, 32);
      while (!LateInterrupt::peer_may_call) absl::SleepFor(absl::Milliseconds(1));
      EXPECT_EQ(rank.Start(programs[1], {.out = other.data()}).Wait(), absl::OkStatus());
      LateInterrupt::peer_is_done = true;
      return;
    }
    CapturingStream stream(rank);
    const FakeCudaCounts before = FakeCuda::Counts();
    Work work(call, call->Submit({}));
    LateInterrupt::is_asked = true;
    EXPECT_EQ(work.WaitOnStream(stream.get()), absl::CancelledError("rank 0: Ctrl-C was pressed"));
    LateInterrupt::peer_may_call = true;  // also where nobody has asked the watch
    EXPECT_EQ((FakeCuda::Counts() - before).event_waits, 3) << "two are those of the calls for their inputs";
  });
}

// Submit waits for a captured call, and cannot tell: the Work does.
TEST_P(StreamFirstCallsTest, TheErrorOfAWatchDuringACaptureIsThatOfTheCall) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansOf(2));
  const FakeMemory memory(0, 32);
  Call* const call = Call::Create(programs[0], *world.At(0).channel);
  ASSERT_EQ(call->SetBuffers(nullptr, memory.data(), nullptr), absl::OkStatus());
  const LateInterrupt interrupt(call);
  world.OnEveryRank([&](StreamRank& rank) {
    CapturingStream stream(rank);
    if (rank.rank == 1) {
      const FakeMemory other(1, 32);
      while (!LateInterrupt::peer_may_call) absl::SleepFor(absl::Milliseconds(1));
      (void)stream.Capture(programs[1], other.data());
      LateInterrupt::peer_is_done = true;
      return;
    }
    FakeCuda::BeginCapture(stream.get());
    LateInterrupt::is_asked = true;
    Work work(call, call->Submit({.stream = stream.get()}));
    EXPECT_EQ(work.Wait(), absl::CancelledError("rank 0: Ctrl-C was pressed"));
    LateInterrupt::peer_may_call = true;  // also where nobody has asked the watch
    FakeGraph graph;
    (void)FakeCuda::EndCapture(stream.get(), &graph);
  });
}

}  // namespace
}  // namespace tutti
