// The part of the conformance suite in which a peer takes nothing of what is sent to it.
#include <time.h>

#include <algorithm>
#include <deque>
#include <string>

#include "gmock/gmock.h"
#include "tests/transports/conformance.h"

namespace tutti {
namespace {

using testing::HasSubstr;

struct Flood {
  std::size_t messages;
  std::size_t bytes;
};

// The longest Shutdown, which takes two seconds by its contract, on machines that stand still for seconds: a Shutdown
// that waited for the peer would not end. Also the longest Sleep after a Wake.
constexpr absl::Duration kSoon = absl::Seconds(30);

// Messages that are more than the memory between two ranks holds: sends wait until the peer takes them.
constexpr Flood kFloods[] = {{1000, 4 << 10}, {1, 160'000'000}};

absl::Duration CpuTimeOfThisThread() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

constexpr absl::Duration kRest = absl::Milliseconds(100);

// The processor time of a rank that has nothing to do for kRest.
absl::Duration CpuOfRest(RankDriver& me) {
  const absl::Duration cpu = CpuTimeOfThisThread();
  const absl::Time start = absl::Now();
  while (absl::Now() < start + kRest) {
    me.transport.Progress();
    me.transport.Sleep(start + kRest);
    EXPECT_TRUE(me.FirstLoss().ok());
  }
  EXPECT_LT(absl::Now(), start + kRest + kSoon);
  return CpuTimeOfThisThread() - cpu;
}

// The least of three rests: while the first begins, the rank may still move what the memory between the ranks holds.
absl::Duration LeastCpuOfRests(RankDriver& me) {
  absl::Duration least = CpuOfRest(me);
  for (int more = 0; more < 2 && least >= kRest / 2; ++more) least = std::min(least, CpuOfRest(me));
  return least;
}

}  // namespace

TEST_P(TransportConformance, APeerThatTakesNothingKeepsNobodyAwakeAndHoldsNobodyUp) {
  for (const Flood& flood : kFloods) {
    std::atomic<bool> flooded = false;
    std::atomic<bool> over = false;
    RunRanks(3, [&](RankDriver& me) {
      const absl::Status cause = absl::InternalError("rank 2 had enough");
      std::deque<Op> ops(flood.messages);
      if (me.rank == 0) {
        const std::string data(flood.bytes, 'x');
        for (std::size_t i = 0; i < ops.size(); ++i) me.Send(1, i, data, &ops[i]);
        EXPECT_LT(LeastCpuOfRests(me), kRest / 2);
        const absl::Time woken = absl::Now();
        me.transport.Wake();
        me.transport.Sleep(woken + absl::Minutes(1));
        EXPECT_LT(absl::Now(), woken + kSoon);
        flooded = true;
        flooded.notify_all();
        const absl::Status error = me.AwaitError();
        EXPECT_EQ(error, absl::InternalError("rank 2 had enough (told by rank 2)"));
        const absl::Time shutdown = absl::Now();
        me.transport.Shutdown(error);
        EXPECT_LT(absl::Now(), shutdown + kSoon);
        for (const Op& op : ops) EXPECT_TRUE(op.calls == 1 && (op.status.ok() || op.status == error)) << op.status;
        over = true;
        over.notify_all();
      } else if (me.rank == 1) {
        over.wait(false);  // this rank computes and moves no messages
      } else {
        flooded.wait(false);
        me.transport.Shutdown(cause);
      }
    });
  }
}

TEST_P(TransportConformanceSlow, AGoodbyeToAPeerThatTakesNothingEnds) {
  std::atomic<bool> over = false;
  RunRanks(2, [&](RankDriver& me) {
    if (me.rank == 1) {
      over.wait(false);
      absl::Status error;
      me.DriveUntil([&] { return me.transport.HasLeft(0) || !(error = me.FirstLoss()).ok(); });
      // Without shared memory the goodbye, too, was among what could not be taken.
      if (GetParam().maps_peers) {
        EXPECT_TRUE(error.ok()) << error;
      }
      if (!error.ok()) {
        EXPECT_THAT(error.message(), HasSubstr("rank 0 "));
      }
      return;
    }
    const std::string data(kFloods[0].bytes, 'x');
    std::deque<Op> ops(kFloods[0].messages);
    for (std::size_t i = 0; i < ops.size(); ++i) me.Send(1, i, data, &ops[i]);
    const absl::Time start = absl::Now();
    me.transport.Shutdown(absl::OkStatus());
    EXPECT_LT(absl::Now(), start + kSoon);
    for (const Op& op : ops) EXPECT_EQ(op.calls, 1);
    over = true;
    over.notify_all();
  });
}

}  // namespace tutti
