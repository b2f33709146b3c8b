#include "tests/churn/loop.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "tests/churn/rank.h"
#include "tests/churn/usage.h"
#include "tests/churn/worker.h"
#include "tests/harness/rank_processes.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::churn {
namespace {

constexpr int kSamples = 20;
// The index of the first sample that counts: memory may still grow before, while caches fill up.
constexpr int kWarm = 4;
// Of the last kLast samples the one with the most free memory in the arena counts, because calls of the other groups
// hold memory of the arena in some of them.
constexpr int kLast = 5;
// The bytes that caches of plans may still grow by, per rank.
constexpr std::int64_t kHeapSlack = std::int64_t{24} << 20;
constexpr std::int64_t kArenaSlack = std::int64_t{4} << 20;
constexpr absl::Duration kNoProgress = absl::Seconds(60);

struct Sample {
  Usage usage;
  std::int64_t free_piece = 0;

  std::string ToString() const {
    return absl::StrCat(usage.descriptors, " descriptors, ", usage.threads, " threads, ", usage.heap_bytes >> 20,
                        " MiB of the heap, largest free piece of the arena ", free_piece >> 20, " MiB");
  }
};

// A text that describes the leak by which `late` and `early` differ; "" when there is none. `ranks`: the number of
// ranks that share this process.
std::string Growth(const Sample& early, Sample late, absl::Span<const Sample> last, int ranks) {
  for (const Sample& sample : last) late.free_piece = std::max(late.free_piece, sample.free_piece);
  const bool grew = late.usage.descriptors > early.usage.descriptors || late.usage.threads > early.usage.threads ||
                    late.usage.heap_bytes > early.usage.heap_bytes + ranks * kHeapSlack ||
                    late.free_piece < early.free_piece - kArenaSlack;
  return grew ? absl::StrCat("leak: ", early.ToString(), ", and at the end ", late.ToString()) : "";
}

// A thread that makes calls on a group of its own until all ranks are done with the loop.
class Others {
 public:
  Others(const Round& round, Rank rank, Communicator& communicator, const Complain& complain)
      : communicator_(communicator), worker_(round, 0, rank, 1, communicator, complain), thread_([this] { Run(); }) {}
  ~Others() {
    done_ = true;
    thread_.join();
  }

 private:
  void Run() {
    std::int64_t all_done = 0;
    while (all_done == 0 && worker_.MakeCalls(communicator_, 2).ok()) {
      const std::int64_t mine = done_ ? 1 : 0;
      if (!communicator_.AllReduce(&mine, &all_done, 1, DType::kI64, ReduceOp::kMin).Wait().ok()) return;
    }
  }

  Communicator& communicator_;
  std::atomic<bool> done_{false};
  Worker worker_;
  std::thread thread_;
};

absl::Status Loop(Looped looped, int count, const Round& round, Rank rank, const Threads* threads, Lines& lines) {
  const Complain complain = [&lines](const std::string& what) { lines.Say("complaint " + what); };
  absl::StatusOr<std::unique_ptr<Communicator>> world = Join(round, rank, threads);
  if (!world.ok()) return world.status();
  absl::StatusOr<std::unique_ptr<Communicator>> other = (*world)->Split(0, rank);
  if (!other.ok()) return other.status();
  std::vector<Sample> samples;
  Worker worker(round, 0, rank, 0, **world, complain);
  {
    const Others others(round, rank, **other, complain);
    for (int done = 0; done < count;) {
      const absl::Status status = looped == Looped::kGroups ? worker.MakeGroups() : worker.UseStrategy(**world);
      done = looped == Looped::kGroups ? worker.splits() : worker.strategies();
      if (!status.ok()) {
        (*world)->Abort(status);  // else the other thread's peers would wait for this rank
        return absl::Status(status.code(), absl::StrCat("after ", done, " of ", count, ", in ", worker.doing(), ": ",
                                                        status.message()));
      }
      if (done * std::int64_t{kSamples} < count * static_cast<std::int64_t>(samples.size() + 1)) continue;
      lines.Say("progress");
      worker.DropWhatIsKept();
      if (absl::Status met = (*world)->Barrier().Wait(); !met.ok()) return met;
      samples.push_back({OwnUsage(), LargestFreePiece(**world)});
    }
  }
  if (threads == nullptr || rank == 0) {
    lines.Say(absl::StrCat("usage rank ", rank, " early: ", samples[kWarm].ToString()));
    lines.Say(absl::StrCat("usage rank ", rank, " at the end: ", samples.back().ToString()));
  }
  const std::string grew = Growth(samples[kWarm], samples.back(), absl::MakeConstSpan(samples).last(kLast),
                                  threads == nullptr ? 1 : round.ranks);
  if (!grew.empty()) complain(grew);
  worker.CheckEndedCalls();
  return absl::OkStatus();
}

void LoopRank(Looped looped, int count, const Round& round, Rank rank, const Threads* threads, Lines& lines) {
  const absl::Status status = Loop(looped, count, round, rank, threads, lines);
  if (!status.ok()) lines.Say(absl::StrCat("ended rank ", rank, " ", status.ToString()));
}

}  // namespace

LoopResult RunLoop(Looped looped, int count, const Round& round, const std::string& directory) {
  const Meeting meeting = {.directory = directory, .job = absl::StrCat("churn-", getpid(), "-loop")};
  const bool in_threads = round.path == Path::kInproc;
  RankProcesses ranks(in_threads ? 1 : round.ranks, [&](Rank process, Lines& lines) {
    if (!in_threads) {
      BecomeRank(round, process, meeting);
      LoopRank(looped, count, round, process, nullptr, lines);
      return 0;
    }
    const Threads threads = {.store = MakeMemoryStore(), .hub = MakeInprocHub(round.ranks)};
    std::vector<std::thread> running;
    running.reserve(static_cast<std::size_t>(round.ranks));
    for (Rank rank = 0; rank < round.ranks; ++rank) {
      running.emplace_back([&, rank] { LoopRank(looped, count, round, rank, &threads, lines); });
    }
    for (std::thread& thread : running) thread.join();
    return 0;
  });
  LoopResult result;
  int processes = ranks.size();
  while (processes > 0) {
    const std::optional<RankProcesses::Heard> heard = ranks.HearAny(absl::Now() + round.timeout + kNoProgress);
    if (!heard.has_value()) {
      result.found.push_back({Kind::kHang, "no rank has said anything for a minute"});
      return result;
    }
    if (!heard->line.has_value()) {
      --processes;
    } else if (absl::StartsWith(*heard->line, "usage ")) {
      result.usage.push_back(heard->line->substr(6));
    } else if (absl::StartsWith(*heard->line, "ended ")) {
      result.found.push_back({Kind::kError, heard->line->substr(6)});
    } else if (absl::StartsWith(*heard->line, "complaint ")) {
      const bool leak = absl::StartsWith(*heard->line, "complaint leak");
      result.found.push_back({leak ? Kind::kLeak : Kind::kWrongResult, heard->line->substr(10)});
    }
  }
  for (Rank rank = 0; rank < ranks.size(); ++rank) {
    const std::optional<int> ended = ranks.AwaitEnd(rank, absl::Now() + absl::Seconds(10));
    if (ended != 0) result.found.push_back({Kind::kCrash, absl::StrCat("rank ", rank, " did not end by itself")});
  }
  return result;
}

}  // namespace tutti::churn
