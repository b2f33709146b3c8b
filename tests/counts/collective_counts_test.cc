// What collectives between processes cost in the kernel and in memory: system calls, sleeps, bytes on the wires, bytes
// copied, allocations. No time is measured: the counts hold on a busy machine, too. docs/testing.md says how the
// figures of this file are renewed.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "tests/harness/count_allocations.h"
#include "tests/harness/process_world.h"
#include "tests/harness/traced_ranks.h"

namespace tutti {
namespace {

constexpr int kCalls = 20;  // of one kind, which are counted together
// Rounds of all kinds, of kCalls calls of each; the least of the counts of a kind is bounded. Rounds begin so far apart
// that a slow spell of the machine is hardly in all of them.
constexpr int kRounds = 5;
constexpr absl::Duration kRoundsApart = absl::Seconds(1);
constexpr std::int64_t kLong = 4 << 20;
constexpr std::int64_t kMinWired = 66 << 10;  // kMaxShort of transports/ucx/short_frame.h, and one more
constexpr std::int64_t kWindow = 8 << 20;     // kMaxWindow of transports/ucx/wire.h

// How ranks reach each other: by mapped memory, by messages within a node, by messages between nodes.
enum class Path { kMapped, kMessages, kWires };

struct World {
  Path path;
  int size;
};

// The calls that are counted, of 4 B, 64 KiB and 4 MiB: the bytes of the longer of a rank's input and output.
std::vector<CollectiveSpec> AllCalls(int size) {
  std::vector<CollectiveSpec> calls = {{.collective = Collective::kBarrier}};
  for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{64} << 10, kLong}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast}) {
      calls.push_back({.collective = collective, .count = bytes / 4});
    }
    for (const Collective collective : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
      calls.push_back({.collective = collective, .count = std::max<std::int64_t>(1, bytes / 4 / size)});
    }
  }
  return calls;
}

// What a rank reports of the calls of one kind: numbers in a line, in this order.
struct Report {
  std::int64_t allocating = 0;    // calls during which memory was allocated
  std::int64_t wire_bytes = 0;    // Counters::wire_bytes of a call
  std::int64_t staged_bytes = 0;  // Counters::staged_bytes of all calls
  // Of the plan of a call:
  std::int64_t sent = 0;         // bytes
  std::int64_t copied = 0;       // bytes, by this rank
  std::int64_t messages = 0;     // sent and received
  std::int64_t shorts = 0;       // of these, those that a short wire carries between nodes
  std::int64_t frames_sent = 0;  // of messages on a wire
  std::int64_t frames_received = 0;

  std::vector<std::int64_t*> Fields() {
    return {&allocating, &wire_bytes, &staged_bytes, &sent,           &copied,
            &messages,   &shorts,     &frames_sent,  &frames_received};
  }
  std::string ToLine() {
    return absl::StrJoin(Fields(), " ",
                         [](std::string* out, const std::int64_t* field) { absl::StrAppend(out, *field); });
  }
  static Report Of(const std::string& line) {
    Report report;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::vector<std::int64_t*> fields = report.Fields();
    EXPECT_EQ(words.size(), fields.size()) << line;
    for (std::size_t i = 0; i < std::min(words.size(), fields.size()); ++i) {
      EXPECT_TRUE(absl::SimpleAtoi(words[i], fields[i])) << line;
    }
    return report;
  }

  void Read(const Plan& plan) {
    constexpr std::int64_t kFrame = 128 << 10;  // kFrameBytes of transports/ucx/wire.cc
    for (const Step& step : plan.steps) {
      if (step.num_dsts + step.num_srcs == 0) continue;
      const std::int64_t bytes = plan.refs[step.first_ref].bytes;
      if (step.kind == StepKind::kCopy) copied += bytes * step.num_dsts;
      const bool sends = step.kind == StepKind::kSend;
      if (!sends && step.kind != StepKind::kRecv) continue;
      ++messages;
      if (sends) sent += bytes;
      if (bytes < kMinWired) {
        ++shorts;
      } else {
        (sends ? frames_sent : frames_received) += (bytes + kFrame - 1) / kFrame;
      }
    }
  }
};

// The phase of round `round` (from 0 on) of the calls of kind `call`.
int PhaseOf(std::size_t call, int round) { return kFirstPhase + static_cast<int>(call) * kRounds + round; }

using Caller = absl::FunctionRef<Work(const CollectiveSpec& spec, std::size_t first_buffer)>;

void WarmUp(const std::vector<CollectiveSpec>& specs, Caller call) {
  for (int warm_up = 0; warm_up < 2; ++warm_up) {
    for (const CollectiveSpec& spec : specs) {
      // Two calls at a time leave two in their pool: one may not have come back yet when the next begins.
      Work first = call(spec, 0), second = call(spec, 2);
      EXPECT_EQ(first.Wait(), absl::OkStatus());
      EXPECT_EQ(second.Wait(), absl::OkStatus());
    }
  }
  // A wire gets what it needs for as many messages as it ever has under way: a window of the shortest.
  const CollectiveSpec shortest_wired = {.collective = Collective::kAllToAll, .count = kMinWired / 4};
  for (int warm_up = 0; warm_up < 2 * kWindow / kMinWired; ++warm_up) {
    EXPECT_EQ(call(shortest_wired, 0).Wait(), absl::OkStatus());
  }
}

// Makes the call of `spec` kCalls times in the phase `phase`, and adds to `counted` what one round counts.
void CountCalls(Communicator& comm, const CollectiveSpec& spec, Caller call, int phase, Report& counted) {
  for (int warm_up = 0; warm_up < kCalls; ++warm_up) EXPECT_EQ(call(spec, 0).Wait(), absl::OkStatus());
  EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  const Counters before = comm.counters();
  std::int64_t allocating = 0;
  BeginPhase(phase);
  for (int n = 0; n < kCalls; ++n) {
    const std::int64_t allocations_before = allocations;
    EXPECT_EQ(call(spec, 0).Wait(), absl::OkStatus());
    if (allocations != allocations_before) ++allocating;
  }
  BeginPhase(kNotCounted);
  counted.allocating = std::min(counted.allocating, allocating);
  const Counters after = comm.counters();
  counted.wire_bytes += after.wire_bytes - before.wire_bytes;
  counted.staged_bytes += after.staged_bytes - before.staged_bytes;
}

// The rank's side: makes every call kCalls times in each of kRounds phases, and reports.
void CallAll(Communicator& comm, const ProcessWorld::Report& report, const std::atomic<bool>& is_traced) {
  std::vector<Buffer> buffers;
  for (int i = 0; i < 4; ++i) buffers.push_back(comm.Allocate(kLong).value());
  const auto call = [&](const CollectiveSpec& spec, std::size_t first) {
    return comm.Call(spec, buffers[first].data(), buffers[first + 1].data());
  };
  const std::vector<CollectiveSpec> specs = AllCalls(comm.size());
  WarmUp(specs, call);
  report("ready");
  while (!is_traced.load()) absl::SleepFor(absl::Milliseconds(1));
  std::vector<Report> counted(specs.size(), Report{.allocating = kCalls});
  for (int round = 0; round < kRounds; ++round) {
    const absl::Time next = absl::Now() + kRoundsApart;
    for (std::size_t i = 0; i < specs.size(); ++i) CountCalls(comm, specs[i], call, PhaseOf(i, round), counted[i]);
    absl::SleepFor(next - absl::Now());
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    counted[i].Read(comm.PlanFor(specs[i]).value());
    counted[i].wire_bytes /= kRounds * kCalls;
    report(counted[i].ToLine());
  }
  EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  BeginPhase(kEnd);
}

// Bounds of system calls, by name, for one call of a collective. How often a rank polls and sleeps depends on time, so
// the least of kRounds counts is bounded, by about twice what was seen at most, alone and beside others of this test on
// two cores. Within a node, a system call for each segment of 4 MiB, of which there are 16, is beyond each of these
// bounds.
std::map<std::string, double> Bounds(Path path, const Report& call) {
  const auto messages = static_cast<double>(call.messages);
  const bool wires = path == Path::kWires;
  // A short message is one write. Up to four frames are written at a time, unless the kernel's buffer fills up, and
  // announcements of several messages. A reader that is faster than the sender gets a frame in parts. Both also tell,
  // and hear, a few times in a call what has been matched.
  const double writes = static_cast<double>(call.shorts) + 0.9 * static_cast<double>(call.frames_sent);
  const double reads = static_cast<double>(call.shorts) + 3 * static_cast<double>(call.frames_received);
  return {
      {"futex", 8 + 0.2 * messages},  // the engine's thread is woken, peers are, and the caller sleeps
      {"sched_yield", 200},           // up to the limit of Backoff in each sleep
      // Within a node, after each announced message that is read, whether its sender lives; on a wire, in each poll.
      {"epoll_wait", 2 + (wires ? 12 : 2) * messages},
      {"ppoll", 2 + 2 * messages},
      {"read", 2 + 6 * messages},  // descriptors by which UCX is woken
      // Within a node, UCX's own messages, of which UCX sees whether there are any before each sleep.
      {"recv", 2 + (wires ? 2 : 3) * messages + (wires ? 8 + reads : 0)},
      {"send", wires ? 4 + writes : 2 + 2 * messages},
      {"write", 1},
      // A reader that is faster than the sender asks to be told of no less than the rest of a frame.
      {"setsockopt", wires ? static_cast<double>(call.frames_received) : 0},
      {"others", 4},  // memory of the allocator grows, and a thread looks after the load of the machine now and then
  };
}

std::string GroupOf(const std::string& name) {
  for (const char* const known :
       {"sched_yield", "epoll_wait", "ppoll", "read", "write", "setsockopt", "clock_gettime"}) {
    if (name == known) return name;
  }
  if (name == "sendto" || name == "sendmsg") return "send";
  if (name == "recvfrom" || name == "recvmsg") return "recv";
  return name == "futex wait" || name == "futex wake" ? "futex" : "others";
}

// Checks the least counts of `rounds`.
void CheckSystemCalls(Path path, const Report& report, absl::Span<const SystemCalls> rounds) {
  std::map<std::string, std::int64_t> least;
  std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
  std::string all;
  for (const SystemCalls& counts : rounds) {
    std::map<std::string, std::int64_t> sums;
    for (const auto& [name, count] : counts.calls) sums[GroupOf(name)] += count;
    // A group that a round is without has the least count, 0, in that round.
    if (&counts == &rounds.front()) least = sums;
    for (auto& [name, count] : least) count = std::min(count, sums[name]);
    least_bytes = std::min(least_bytes, counts.bytes_sent);
    absl::StrAppend(&all, "\n", counts.ToString());
  }
  least.erase("clock_gettime");  // where the kernel's clock cannot be read without a call
  const std::map<std::string, double> bounds = Bounds(path, report);
  for (const auto& [name, count] : least) {
    EXPECT_LE(static_cast<double>(count), kCalls * bounds.at(name)) << name << "; in all rounds:" << all;
  }
  if (path != Path::kWires) {
    // Messages of a node are in its memory: UCX tells by a byte that there are some.
    EXPECT_LE(least_bytes, kCalls * (16 + 8 * report.messages)) << all;
    return;
  }
  // A header for each frame, and one for each short message or announcement; and what has been matched.
  const std::int64_t headers = 32 * report.frames_sent + 24 * report.messages + 64;
  EXPECT_LE(least_bytes, kCalls * (report.sent + headers)) << all;
}

// The bytes of 4 MiB that one rank copies, in the plan of a call whose output is not its input.
std::int64_t CopiedOfLong(Collective collective, World world, Rank rank) {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return world.path == Path::kMapped ? kLong : kLong / world.size;  // of messages only what stays here
    case Collective::kBroadcast:
      return world.path == Path::kMapped || rank == 0 ? kLong : 0;
    default:
      return 0;
  }
}

// The optimum of 4 MiB: the bytes that a rank sends, or, by mapped memory, reads and writes in that of peers.
std::int64_t WireBytesOfLong(Collective collective, int size) {
  return (collective == Collective::kAllReduce ? 2 : 1) * kLong / size * (size - 1);
}

// Calls of kCalls that may allocate; an allocation that belongs to each call or message happens in all of them. A few
// times a minute UCX looks whether its peers' processes live, for which it reads files. Messages that come before their
// receives are posted need memory where more of them have come at a time than ever before, which depends on time.
constexpr std::int64_t kMaxAllocating = kCalls - 2;

class CollectiveCountsSlow : public testing::TestWithParam<World> {};

TEST_P(CollectiveCountsSlow, AreWithinTheirBounds) {
  const auto [path, size] = GetParam();
  void* const page =
      mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& is_traced = *new (page) std::atomic<bool>(false);
  CommunicatorOptions options{.timeout = absl::Minutes(1)};
  if (path == Path::kMessages) options.mapping = CommunicatorOptions::Mapping::kNever;
  // Between nodes the choice depends on the link as it was measured, also by ranks that wait for a processor.
  if (path == Path::kWires) {
    options.schedules =
        "all_gather=ring,all_reduce=halving_doubling,all_to_all=pairwise,broadcast=binomial,"
        "reduce_scatter=ring";
  }
  ProcessWorld ranks(
      size, options, [&](Communicator& comm, const ProcessWorld::Report& report) { CallAll(comm, report, is_traced); },
      nullptr,
      /*ranks_per_node=*/path == Path::kWires ? 1 : 0);
  std::vector<pid_t> processes;
  for (Rank rank = 0; rank < size; ++rank) {
    ASSERT_EQ(ranks.NextLine(rank), "ready");
    processes.push_back(ranks.pid(rank));
  }
  absl::StatusOr<TracedRanks> traced = TracedRanks::Attach(processes);
  if (!traced.ok()) GTEST_SKIP() << "system calls cannot be counted here: " << traced.status();
  is_traced = true;
  ASSERT_EQ(traced->TraceUntilEnd(), absl::OkStatus());
  const std::vector<CollectiveSpec> specs = AllCalls(size);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const Collective collective = specs[i].collective;
    std::int64_t wire_bytes_of_all = 0;
    bool is_long = false;
    for (Rank rank = 0; rank < size; ++rank) {
      SCOPED_TRACE(absl::StrCat(Name(collective), " of ", specs[i].count, " elements, rank ", rank));
      const Report report = Report::Of(ranks.NextLine(rank));
      std::vector<SystemCalls> rounds;
      for (int round = 0; round < kRounds; ++round) rounds.push_back(traced->counts(rank, PhaseOf(i, round)));
      CheckSystemCalls(path, report, rounds);
      EXPECT_LE(report.allocating, kMaxAllocating);
      EXPECT_EQ(report.staged_bytes, 0);
      if (path != Path::kMapped) {
        EXPECT_EQ(report.wire_bytes, report.sent);
      }
      wire_bytes_of_all += report.wire_bytes;
      const bool has_blocks = collective != Collective::kAllReduce && collective != Collective::kBroadcast;
      is_long = specs[i].count * 4 * (has_blocks ? size : 1) == kLong;
      if (!is_long) continue;
      EXPECT_EQ(report.copied, CopiedOfLong(collective, GetParam(), rank));
      if (collective != Collective::kBroadcast) {
        EXPECT_EQ(report.wire_bytes, WireBytesOfLong(collective, size));
      }
    }
    if (is_long && collective == Collective::kBroadcast) {
      EXPECT_EQ(wire_bytes_of_all, kLong * (size - 1));
    }
  }
  traced->Kill();
  munmap(page, sizeof(std::atomic<bool>));
}

std::string NameOfWorld(const testing::TestParamInfo<World>& world) {
  const char* const paths[] = {"mapped", "messages", "wires"};
  return absl::StrCat(paths[static_cast<int>(world.param.path)], "_", world.param.size);
}

INSTANTIATE_TEST_SUITE_P(, CollectiveCountsSlow,
                         testing::Values(World{Path::kMapped, 2}, World{Path::kMapped, 4}, World{Path::kMessages, 2},
                                         World{Path::kMessages, 4}, World{Path::kWires, 2}, World{Path::kWires, 4}),
                         NameOfWorld);

}  // namespace
}  // namespace tutti
