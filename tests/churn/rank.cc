#include "tests/churn/rank.h"

#include <functional>
#include <latch>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "tests/churn/usage.h"
#include "tests/churn/worker.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::churn {
namespace {

// Tells the supervisor the lines of a process of one or more ranks, and what its threads are doing.
class Reporter {
 public:
  Reporter(Lines& lines, int ranks) : lines_(lines), ranks_(ranks) {}

  void Complain(const std::string& what) { lines_.Say("complaint " + OneLine(what)); }
  // Says "working" when all ranks of the process have called this.
  void Working(Rank rank) { SayWhenAll("working", rank); }
  void Idle(Rank rank) { SayWhenAll("idle", rank); }
  void Ended(int thread, std::int64_t begun_ns, const absl::Status& status) {
    lines_.Say(absl::StrCat("ended ", thread, " ", begun_ns, " ", MonotonicNanos(), " ",
                            static_cast<int>(status.code()), " ", OneLine(status.ToString())));
  }

  // Adds a thread's worker, which is asked what the thread is doing.
  void Watch(Rank rank, const Worker* worker) {
    const MutexLock lock(mutex_);
    workers_.emplace(rank, worker);
  }
  void Forget(Rank rank) {
    const MutexLock lock(mutex_);
    workers_.erase(rank);
  }
  void SayWhere() {
    const MutexLock lock(mutex_);
    std::string where = "where";
    for (const auto& [rank, worker] : workers_) {
      absl::StrAppend(&where, " [rank ", rank, ": ", worker->doing(), ", waits for ",
                      (MonotonicNanos() - worker->waits_since_ns()) / 1'000'000, " ms]");
    }
    lines_.Say(where);
  }

 private:
  static std::string OneLine(const std::string& text) { return absl::StrReplaceAll(text, {{"\n", " "}}); }

  void SayWhenAll(const std::string& line, Rank rank) {
    const MutexLock lock(mutex_);
    std::set<Rank>& arrived = arrived_[line];
    if (arrived.insert(rank).second && static_cast<int>(arrived.size()) == ranks_) lines_.Say(line);
  }

  Lines& lines_;
  const int ranks_;
  Mutex mutex_;
  std::multimap<Rank, const Worker*> workers_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::string, std::set<Rank>> arrived_ TUTTI_GUARDED_BY(mutex_);  // by line: the ranks that would say it
};

// Hears what the supervisor says to a process.
class Listener {
 public:
  Listener(Lines& lines, Reporter& reporter) : lines_(lines), thread_([this, &reporter] { Listen(reporter); }) {}
  ~Listener() {
    lines_.StopHearing();
    thread_.join();
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void AwaitGoOn() { go_on_.wait(); }

 private:
  void Listen(Reporter& reporter) {
    while (const std::optional<std::string> line = lines_.Hear(absl::InfiniteFuture())) {
      if (*line == "where") reporter.SayWhere();
      if (*line == "go on") go_on_.count_down();
    }
  }

  Lines& lines_;
  std::latch go_on_{1};
  std::thread thread_;
};

// Does the work of one thread in one world.
void Work(const Round& round, Rank rank, int thread, Communicator& communicator, Worker& worker, Reporter& reporter) {
  const bool is_victim = rank == round.victim;
  for (int i = 0; !round.ends_by_itself() || i < round.activities; ++i) {
    if (is_victim && i == round.activities / 2) {
      if (round.fault == Fault::kLeave) return;
      if (round.fault == Fault::kAbort) {
        communicator.Abort(absl::AbortedError(absl::StrCat("rank ", rank, " gives up")));
      }
    }
    const absl::Status status = worker.DoNext();
    if (!status.ok()) return reporter.Ended(thread, worker.waits_since_ns(), status);
  }
}

// Makes a communicator for each thread: the world, and groups of the same ranks.
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> JoinForThreads(const Round& round, Rank rank,
                                                                          const Threads* threads) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  absl::StatusOr<std::unique_ptr<Communicator>> world = Join(round, rank, threads);
  if (!world.ok()) return world.status();
  communicators.push_back(*std::move(world));
  for (int thread = 1; thread < round.threads; ++thread) {
    absl::StatusOr<std::unique_ptr<Communicator>> other = communicators[0]->Split(0, rank);
    if (!other.ok()) return other.status();
    communicators.push_back(*std::move(other));
  }
  if (round.fault == Fault::kAbort) {
    // The victim may abort as soon as all ranks have come here. This barrier is in a group that nobody aborts, so that
    // every rank sees the others come.
    absl::StatusOr<std::unique_ptr<Communicator>> meeting = communicators[0]->Split(0, rank);
    if (!meeting.ok()) return meeting.status();
    if (const absl::Status met = (*meeting)->Barrier().Wait(); !met.ok()) return met;
    communicators.push_back(*std::move(meeting));
  }
  return communicators;
}

// Lives through one world of the round; `may_go` returns when the rank may destroy its communicators.
void LiveInWorld(const Round& round, int world, Rank rank, const Threads* threads, Reporter& reporter,
                 const std::function<void()>& may_go) {
  const std::int64_t begun_ns = MonotonicNanos();
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> communicators = JoinForThreads(round, rank, threads);
  if (!communicators.ok()) {
    reporter.Ended(-1, begun_ns, communicators.status());
    return reporter.Idle(rank);
  }
  if (world == 0) reporter.Working(rank);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int thread = 0; thread < round.threads; ++thread) {
    workers.push_back(std::make_unique<Worker>(round, world, rank, thread,
                                               *(*communicators)[static_cast<std::size_t>(thread)],
                                               [&](const std::string& what) { reporter.Complain(what); }));
    reporter.Watch(rank, workers.back().get());
  }
  std::vector<std::thread> running;
  for (int thread = 0; thread < round.threads; ++thread) {
    running.emplace_back([&, thread] {
      const auto i = static_cast<std::size_t>(thread);
      Work(round, rank, thread, *(*communicators)[i], *workers[i], reporter);
    });
  }
  for (std::thread& thread : running) thread.join();
  if (world + 1 == round.worlds) reporter.Idle(rank);
  const bool leaves_early = round.fault == Fault::kLeave && rank == round.victim;
  if (!round.ends_by_itself() && !leaves_early) may_go();
  for (const std::unique_ptr<Worker>& worker : workers) worker->CheckEndedCalls();
  reporter.Forget(rank);
}

// Complains when the process holds more after its third world than after the second. A thread that has been joined is
// still counted for a moment.
void CheckUsage(const Usage& second, Reporter& reporter) {
  Usage third = OwnUsage();
  for (int look = 0; look < 100 && third.threads > second.threads; ++look) {
    absl::SleepFor(absl::Milliseconds(10));
    third = OwnUsage();
  }
  if (third.descriptors > second.descriptors) {
    reporter.Complain(absl::StrCat("leak: ", third.descriptors, " descriptors after a third world, ",
                                   second.descriptors, " after the second"));
  }
  if (third.threads > second.threads) {
    reporter.Complain(
        absl::StrCat("leak: ", third.threads, " threads after a third world, ", second.threads, " after the second"));
  }
}

}  // namespace

int RunRank(const Round& round, Rank rank, const Meeting& meeting, Lines& lines) {
  BecomeRank(round, rank, meeting);
  Reporter reporter(lines, 1);
  Listener listener(lines, reporter);
  Usage second;
  for (int world = 0; world < round.worlds; ++world) {
    LiveInWorld(round, world, rank, nullptr, reporter, [&] {
      if (!round.survivors_leave_at_once) listener.AwaitGoOn();
    });
    if (world == 1) second = OwnUsage();
  }
  if (round.worlds == 3) CheckUsage(second, reporter);
  return 0;
}

int RunRanksAsThreads(const Round& round, Lines& lines) {
  Reporter reporter(lines, round.ranks);
  const Listener listener(lines, reporter);
  Usage second;
  for (int world = 0; world < round.worlds; ++world) {
    {
      const Threads threads = {.store = MakeMemoryStore(), .hub = MakeInprocHub(round.ranks)};
      std::vector<std::thread> ranks;
      for (Rank rank = 0; rank < round.ranks; ++rank) {
        ranks.emplace_back([&, rank] { LiveInWorld(round, world, rank, &threads, reporter, [] {}); });
      }
      for (std::thread& rank : ranks) rank.join();
    }
    if (world == 1) second = OwnUsage();
  }
  if (round.worlds == 3) CheckUsage(second, reporter);
  return 0;
}

}  // namespace tutti::churn
