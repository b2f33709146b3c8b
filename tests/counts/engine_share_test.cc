// What the engine takes of a processor: while a peer is late, counted as system calls and as processor time; and beside
// threads that keep all processors busy. No bound is one of time that passes: a longer wait may use more.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"
#include "tests/harness/traced_ranks.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

constexpr absl::Duration kLate = absl::Milliseconds(400);
// Rounds of waits of all kinds. The least that a kind takes in a round is bounded: rounds are seconds apart, so that a
// slow spell of the machine is hardly in all of them.
constexpr int kRounds = 3;
constexpr std::int64_t kSizes[] = {4, 64 << 10, 4 << 20};  // bytes of a bucket

// Who waits: the engine's thread, while the rank computes (which it does not in this test: it sleeps), or the caller.
enum class Waiter { kEngine, kCaller };
constexpr Waiter kWaiters[] = {Waiter::kEngine, Waiter::kCaller};

struct Path {
  const char* name;
  CommunicatorOptions::Mapping mapping;
  int ranks_per_node;
};

// The memory that the processes of a test share.
struct Shared {
  std::atomic<bool> may_begin{false};
  std::atomic<int> let_go{0};  // so many waits have been counted: the late rank may make its call
};

void AwaitUntil(const std::atomic<int>& number, int least) {
  while (number.load() < least) absl::SleepFor(absl::Milliseconds(1));
}

std::int64_t CpuOfProcess() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return absl::ToInt64Nanoseconds(absl::DurationFromTimespec(used));
}

// Rank 0 exchanges buckets for which rank 1 is late, and reports for each: nanoseconds of wall time and of processor
// time in the wait. `counted` counts the waits.
void Exchange(Communicator& comm, const Strategy& strategy, const ProcessWorld::Report& report, Shared& shared,
              int& counted) {
  for (const std::int64_t bytes : kSizes) {
    Buffer buffer = comm.Allocate(bytes).value();
    absl::StatusOr<BoundPlan> bucket = comm.Bind(strategy, DType::kF32, bytes / 4, 0, {.out = buffer.data()});
    ASSERT_TRUE(bucket.ok()) << bucket.status();
    for (int warm_up = 0; warm_up < 20; ++warm_up) ASSERT_EQ(bucket->Start().Wait(), absl::OkStatus());
    for (const Waiter waiter : kWaiters) {
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      if (comm.rank() == 1) {
        AwaitUntil(shared.let_go, ++counted);
        ASSERT_EQ(bucket->Start().Wait(), absl::OkStatus());
        continue;
      }
      BeginPhase(kFirstPhase + counted);
      const std::int64_t cpu = CpuOfProcess();
      const absl::Time began = absl::Now();
      Work work = bucket->Start();
      if (waiter == Waiter::kEngine) absl::SleepFor(kLate);
      const bool ended = waiter == Waiter::kCaller ? work.Wait(absl::Now() + kLate).ok() : work.done();
      const std::int64_t used = CpuOfProcess() - cpu;
      const std::int64_t passed = absl::ToInt64Nanoseconds(absl::Now() - began);
      BeginPhase(kNotCounted);
      EXPECT_FALSE(ended);
      report(absl::StrCat(passed, " ", used));
      shared.let_go.store(++counted);
      ASSERT_EQ(work.Wait(), absl::OkStatus());
    }
  }
}

void ExchangeInRounds(Communicator& comm, const ProcessWorld::Report& report, Shared& shared) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy("gradient_allreduce");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  report("ready");
  while (!shared.may_begin.load()) absl::SleepFor(absl::Milliseconds(1));
  int counted = 0;
  for (int round = 0; round < kRounds; ++round) Exchange(comm, *strategy, report, shared, counted);
  ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  BeginPhase(kEnd);
}

// What the engine's thread used for an exchange of kBuckets buckets.
struct Share {
  std::int64_t cpu = 0;      // nanoseconds of processor time
  std::int64_t waiting = 0;  // of them, to wait for peers
  std::int64_t work() const { return cpu - waiting; }
};

Share ExchangeInEngine(Communicator& comm, BoundPlan& bucket) {
  constexpr int kBuckets = 50;
  EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  const Counters before = comm.counters();
  for (int i = 0; i < kBuckets; ++i) {
    const Work work = bucket.Start();
    while (!work.done()) absl::SleepFor(absl::Microseconds(500));  // the engine's thread drives
  }
  const Counters after = comm.counters();
  return {.cpu = absl::ToInt64Nanoseconds(after.engine_cpu - before.engine_cpu),
          .waiting = absl::ToInt64Nanoseconds(after.engine_waiting - before.engine_waiting)};
}

// Every rank exchanges buckets, at first alone, and then beside threads that keep all processors busy; reports what
// its engine's thread used.
void ExchangeBesideBusyThreads(Communicator& comm, const ProcessWorld::Report& report) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy("gradient_allreduce");
  ASSERT_TRUE(strategy.ok()) << strategy.status();
  constexpr std::int64_t kBytes = 1 << 20;
  Buffer buffer = comm.Allocate(kBytes).value();
  absl::StatusOr<BoundPlan> bucket = comm.Bind(*strategy, DType::kF32, kBytes / 4, 0, {.out = buffer.data()});
  ASSERT_TRUE(bucket.ok()) << bucket.status();
  (void)ExchangeInEngine(comm, *bucket);
  const Share alone = ExchangeInEngine(comm, *bucket);
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads(std::thread::hardware_concurrency());
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!ends.load(std::memory_order_relaxed)) {
      }
    });
  }
  const Share beside = ExchangeInEngine(comm, *bucket);
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  report(absl::StrCat(alone.cpu, " ", alone.waiting, " ", beside.cpu, " ", beside.waiting));
}

class LatePeerSlow : public testing::TestWithParam<Path> {
 protected:
  LatePeerSlow()
      : page_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        shared_(*new (page_) Shared),
        ranks_(
            2, {.timeout = absl::Minutes(1), .mapping = GetParam().mapping},
            [this](Communicator& comm, const ProcessWorld::Report& report) { ExchangeInRounds(comm, report, shared_); },
            nullptr, GetParam().ranks_per_node) {
    for (const Rank rank : {0, 1}) EXPECT_EQ(ranks_.NextLine(rank), "ready");
  }
  ~LatePeerSlow() override { munmap(page_, sizeof(Shared)); }

  // One wait of rank 0: its number, and the nanoseconds that it took, of the clock and of a processor.
  struct Wait {
    int number = 0;
    std::int64_t passed = 0;
    std::int64_t used = 0;
  };

  // Calls `check` for each kind of wait, with its wait of each round.
  void ForEachKind(absl::FunctionRef<void(const std::vector<Wait>& rounds)> check) {
    constexpr auto kKinds = std::size(kSizes) * std::size(kWaiters);
    std::vector<std::vector<Wait>> kinds(kKinds);
    for (int number = 0; number < kRounds * static_cast<int>(kKinds); ++number) {
      Wait& wait = kinds[static_cast<std::size_t>(number) % kKinds].emplace_back(Wait{.number = number});
      const std::vector<std::string> words = absl::StrSplit(ranks_.NextLine(0), ' ');
      ASSERT_TRUE(words.size() == 2 && absl::SimpleAtoi(words[0], &wait.passed) &&
                  absl::SimpleAtoi(words[1], &wait.used));
    }
    auto kind = kinds.begin();
    for (const std::int64_t bytes : kSizes) {
      for (const Waiter waiter : kWaiters) {
        SCOPED_TRACE(absl::StrCat(bytes, " bytes, awaited by the ", waiter == Waiter::kEngine ? "engine" : "caller"));
        check(*kind++);
      }
    }
  }

  void* const page_;
  Shared& shared_;
  ProcessWorld ranks_;
};

TEST_P(LatePeerSlow, TakesAFewPercentOfAProcessor) {
  shared_.may_begin = true;
  ForEachKind([](const std::vector<Wait>& rounds) {
    double least = 1;
    for (const Wait& wait : rounds) {
      least = std::min(least, static_cast<double>(wait.used) / static_cast<double>(wait.passed));
    }
    EXPECT_LE(least, 0.03) << "of a processor";
  });
}

TEST_P(LatePeerSlow, SleepsAndLooksNowAndThen) {
  absl::StatusOr<TracedRanks> traced = TracedRanks::Attach({ranks_.pid(0), ranks_.pid(1)});
  if (!traced.ok()) GTEST_SKIP() << "system calls cannot be counted here: " << traced.status();
  shared_.may_begin = true;
  ASSERT_EQ(traced->TraceUntilEnd(), absl::OkStatus());
  ForEachKind([&](const std::vector<Wait>& rounds) {
    std::int64_t least_sleeps = std::numeric_limits<std::int64_t>::max(), least_yields = least_sleeps;
    std::string all;
    for (const Wait& wait : rounds) {
      const SystemCalls& counts = traced->counts(0, kFirstPhase + wait.number);
      const auto count = [&](const std::string& name) {
        const auto found = counts.calls.find(name);
        return found == counts.calls.end() ? 0 : found->second;
      };
      // A rank that waits looks every 50 ms (Engine::kRestSlice).
      const std::int64_t looks = 2 * wait.passed / 50'000'000;
      least_sleeps = std::min(least_sleeps, count("futex wait") + count("ppoll") - looks);
      least_yields = std::min(least_yields, count("sched_yield"));
      absl::StrAppend(&all, "\n", counts.ToString());
    }
    EXPECT_LE(least_sleeps, 20) << "some belong to the start of the bucket; in all rounds:" << all;
    // The polls before the first sleep: up to the limit of Backoff, and for messages those of MessageWait.
    EXPECT_LE(least_yields, 300) << "in all rounds:" << all;
  });
  traced->Kill();
}

class BusyProcessorsSlow : public testing::TestWithParam<Path> {};

TEST_P(BusyProcessorsSlow, GiveTheEngineWhatItsWorkNeeds) {
  ProcessWorld ranks(2, {.timeout = absl::Minutes(1), .mapping = GetParam().mapping}, ExchangeBesideBusyThreads,
                     nullptr, GetParam().ranks_per_node);
  for (const Rank rank : {0, 1}) {
    const std::string line = ranks.NextLine(rank);
    SCOPED_TRACE(absl::StrCat("rank ", rank, ": ", line));
    std::vector<std::int64_t> nanos;
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      ASSERT_TRUE(absl::SimpleAtoi(word, &nanos.emplace_back()));
    }
    ASSERT_EQ(nanos.size(), 4U);
    const Share alone{nanos[0], nanos[1]};
    const Share beside{nanos[2], nanos[3]};
    // Seen: 0.6 of the work at most. A thread that polled until its message comes would take many times its work, for
    // the peer gets its processor late.
    EXPECT_LE(beside.waiting, 2 * beside.work());
    // Seen: 1.6. What the caches hold, and how often the thread is woken, differs beside other threads.
    EXPECT_LE(beside.cpu, 4 * alone.cpu);
  }
}

using Mapping = CommunicatorOptions::Mapping;
constexpr Path kPaths[] = {
    {"mapped", Mapping::kAuto, 0}, {"messages", Mapping::kNever, 0}, {"wires", Mapping::kAuto, 1}};
std::string NameOfPath(const testing::TestParamInfo<Path>& path) { return path.param.name; }

INSTANTIATE_TEST_SUITE_P(, LatePeerSlow, testing::ValuesIn(kPaths), NameOfPath);
INSTANTIATE_TEST_SUITE_P(, BusyProcessorsSlow, testing::ValuesIn(kPaths), NameOfPath);

}  // namespace
}  // namespace tutti
