#include "tests/churn/supervisor.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "tests/churn/blame.h"
#include "tests/churn/rank.h"
#include "tests/churn/usage.h"
#include "tests/harness/rank_processes.h"

namespace tutti::churn {
namespace {

// The time that a busy machine may take in addition to the promised times.
constexpr absl::Duration kSlack = absl::Seconds(8);

// An error with which a thread of a rank ended.
struct ThreadError {
  std::int64_t begun_ns = 0;
  std::int64_t ended_ns = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string text;
};

// The lines that a process has sent so far.
struct Told {
  bool working = false;
  bool idle = false;
  bool lines_ended = false;
  std::int64_t idle_ns = 0;
  std::vector<ThreadError> errors;
};

class Supervisor {
 public:
  Supervisor(const Round& round, const std::string& directory, Report& report)
      : round_(round), directory_(directory), report_(report), before_(SharedMemory::Now()) {
    const Meeting meeting = {.directory = directory, .job = absl::StrCat("churn-", getpid(), "-", round.number)};
    const bool in_threads = round.path == Path::kInproc;
    const int processes = in_threads ? 1 : round.ranks;
    told_.resize(static_cast<std::size_t>(processes));
    ranks_ = std::make_unique<RankProcesses>(processes, [&](Rank rank, Lines& lines) {
      return in_threads ? RunRanksAsThreads(round, lines) : RunRank(round, rank, meeting, lines);
    });
  }

  std::vector<Finding> Run() {
    if (DoFault()) AwaitEnds();
    CheckWhatIsLeft();
    return std::move(findings_);
  }

 private:
  bool IsSurvivor(Rank rank) const { return round_.ends_by_itself() || rank != round_.victim; }
  void Find(Kind kind, const std::string& text) { findings_.push_back({kind, text}); }

  void Hear(const RankProcesses::Heard& heard) {
    Told& told = told_[static_cast<std::size_t>(heard.rank)];
    if (!heard.line.has_value()) {
      told.lines_ended = true;
      return;
    }
    const std::string& line = *heard.line;
    if (line == "working") {
      told.working = true;
    } else if (line == "idle") {
      told.idle = true;
      told.idle_ns = MonotonicNanos();
    } else if (absl::StartsWith(line, "complaint ")) {
      HearComplaint(line.substr(10));
    } else if (absl::StartsWith(line, "where ")) {
      Find(Kind::kHang, absl::StrCat("it is in ", line.substr(6)));
    } else if (absl::StartsWith(line, "ended ")) {
      std::istringstream words(line);
      std::string word;
      int thread = 0;
      int code = 0;
      ThreadError error;
      words >> word >> thread >> error.begun_ns >> error.ended_ns >> code >> std::ws;
      std::getline(words, error.text);
      error.code = static_cast<absl::StatusCode>(code);
      told.errors.push_back(std::move(error));
    }
  }

  void HearComplaint(const std::string& what) {
    const Kind kind = absl::StartsWith(what, "wrong write") ? Kind::kWrongWrite
                      : absl::StartsWith(what, "leak")      ? Kind::kLeak
                                                            : Kind::kWrongResult;
    Find(kind, what);
  }

  // Listens until `told` is true of all processes that `whose` picks, or they have ended. Returns false at the
  // deadline: then the missing processes are a finding.
  bool Await(const std::string& what, absl::Duration bound, const std::function<bool(Rank)>& whose,
             const std::function<bool(const Told&)>& arrived) {
    const absl::Time deadline = absl::Now() + bound;
    const auto missing = [&](Rank rank) {
      const Told& told = told_[static_cast<std::size_t>(rank)];
      return whose(rank) && !told.lines_ended && !arrived(told);
    };
    const auto any_missing = [&] {
      for (Rank rank = 0; rank < ranks_->size(); ++rank) {
        if (missing(rank)) return true;
      }
      return false;
    };
    while (any_missing()) {
      if (const std::optional<RankProcesses::Heard> heard = ranks_->HearAny(deadline)) {
        Hear(*heard);
      } else if (absl::Now() >= deadline) {
        for (Rank rank = 0; rank < ranks_->size(); ++rank) {
          if (!missing(rank)) continue;
          Find(Kind::kHang, absl::StrCat("rank ", rank, " has not ", what, " within ", absl::FormatDuration(bound)));
          ranks_->Say(rank, "where");
        }
        const absl::Time answered = absl::Now() + absl::Seconds(1);
        while (const std::optional<RankProcesses::Heard> answer = ranks_->HearAny(answered)) Hear(*answer);
        return false;
      }
    }
    return true;
  }

  bool AwaitWorking() {
    return Await(
        "joined", round_.timeout + absl::Seconds(30), [](Rank) { return true; },
        [](const Told& told) { return told.working || told.idle; });
  }

  // Lets `duration` pass, and listens to the processes meanwhile.
  void Listen(absl::Duration duration) {
    const absl::Time until = absl::Now() + duration;
    while (absl::Now() < until) {
      if (const std::optional<RankProcesses::Heard> heard = ranks_->HearAny(until)) Hear(*heard);
    }
  }

  bool AwaitIdle(absl::Duration bound, const std::function<bool(Rank)>& whose) {
    return Await("ended", bound, whose, [](const Told& told) { return told.idle; });
  }

  // Does to the victim what the round says; false when ranks hang.
  bool DoFault() {
    const auto survivors = [this](Rank rank) { return IsSurvivor(rank); };
    const auto victim = [this](Rank rank) { return rank == round_.victim; };
    const absl::Duration told_by = round_.timeout + kSlack;
    // The round has no fault: its work ends by itself.
    const absl::Duration done_by = round_.worlds * (2 * round_.timeout + absl::Seconds(30));
    if (round_.fault == Fault::kKillJoin) {
      Listen(round_.fault_after);
      Kill();
      return AwaitIdle(2 * told_by, survivors) && JudgeSurvivors();
    }
    if (!AwaitWorking()) return false;
    Listen(round_.fault == Fault::kNone ? absl::ZeroDuration() : round_.fault_after);
    switch (round_.fault) {
      case Fault::kNone:
        return AwaitIdle(done_by, survivors) && JudgeQuietRound();
      case Fault::kPause:
        ranks_->Signal(round_.victim, SIGSTOP);
        Listen(round_.pause);
        ranks_->Signal(round_.victim, SIGCONT);
        return AwaitIdle(done_by, survivors) && JudgeQuietRound();
      case Fault::kKill:
        Kill();
        return AwaitIdle(told_by, survivors) && JudgeSurvivors();
      case Fault::kStop:
        fault_ns_ = MonotonicNanos();
        ranks_->Signal(round_.victim, SIGSTOP);
        if (!AwaitIdle(told_by, survivors)) return false;
        ranks_->Signal(round_.victim, SIGCONT);
        return AwaitIdle(told_by, victim) && JudgeSurvivors() && JudgeStopped();
      case Fault::kLeave:
        if (!AwaitIdle(done_by, victim)) return false;
        fault_ns_ = told_[static_cast<std::size_t>(round_.victim)].idle_ns;
        return AwaitIdle(told_by, survivors) && JudgeSurvivors();
      case Fault::kAbort:
        return AwaitIdle(done_by, [](Rank) { return true; }) && JudgeSurvivors();
      case Fault::kKillJoin:
        break;
    }
    return true;
  }

  void Kill() {
    fault_ns_ = MonotonicNanos();
    ranks_->Signal(round_.victim, SIGKILL);
  }

  bool JudgeQuietRound() {
    for (const Told& told : told_) {
      for (const ThreadError& error : told.errors) Find(Kind::kError, error.text);
    }
    return true;
  }

  bool JudgeSurvivors() {
    for (Rank rank = 0; rank < ranks_->size(); ++rank) {
      if (!IsSurvivor(rank)) continue;
      const Told& told = told_[static_cast<std::size_t>(rank)];
      absl::Duration news = -absl::InfiniteDuration();
      absl::Duration beyond = -absl::InfiniteDuration();
      for (const ThreadError& error : told.errors) {
        if (std::optional<Finding> wrong = JudgeError(round_, error.code, error.text)) {
          findings_.push_back({wrong->kind, absl::StrCat("survivor ", rank, ": ", wrong->text)});
        }
        for (const Rank blamed : BlamedRanks(error.text)) {
          if (blamed == round_.victim || !told_[static_cast<std::size_t>(blamed)].errors.empty()) continue;
          Find(Kind::kWrongBlame,
               absl::StrCat("survivor ", rank, " names rank ", blamed, ", which is well: ", error.text));
        }
        news = std::max(news, absl::Nanoseconds(error.ended_ns - fault_ns_));
        beyond = std::max(beyond, absl::Nanoseconds(error.ended_ns - error.begun_ns) - round_.timeout);
      }
      if (told.errors.empty()) continue;
      if (round_.fault == Fault::kKill) report_.after_kill.Add(news);
      if (round_.fault == Fault::kStop) report_.after_stop.Add(beyond);
      if (round_.fault == Fault::kLeave) report_.after_leave.Add(news);
    }
    return true;
  }

  // Checks that a victim that was stopped too long learns that its peers have given it up.
  bool JudgeStopped() {
    for (const ThreadError& error : told_[static_cast<std::size_t>(round_.victim)].errors) {
      if (BlamedRanks(error.text).empty()) {
        Find(Kind::kWrongBlame, absl::StrCat("the stopped rank: an error that names no rank: ", error.text));
      }
    }
    return true;
  }

  void AwaitEnds() {
    for (Rank rank = 0; rank < ranks_->size(); ++rank) ranks_->Say(rank, "go on");
    Await(
        "exited", absl::Seconds(10) + kSlack, [](Rank) { return true; }, [](const Told&) { return false; });
    for (Rank rank = 0; rank < ranks_->size(); ++rank) {
      const bool killed = rank == round_.victim && (round_.fault == Fault::kKill || round_.fault == Fault::kKillJoin);
      const std::optional<int> ended = ranks_->AwaitEnd(rank, absl::Now() + absl::Seconds(5));
      if (!ended.has_value() || killed) continue;  // a process that does not end is a finding already
      if (WIFSIGNALED(*ended)) Find(Kind::kCrash, absl::StrCat("rank ", rank, " ended by signal ", WTERMSIG(*ended)));
      if (WIFEXITED(*ended) && WEXITSTATUS(*ended) != 0) {
        Find(Kind::kCrash, absl::StrCat("rank ", rank, " exited with ", WEXITSTATUS(*ended)));
      }
    }
  }

  void CheckWhatIsLeft() {
    std::vector<pid_t> dead;
    for (Rank rank = 0; rank < ranks_->size(); ++rank) dead.push_back(ranks_->pid(rank));
    ranks_.reset();
    // A rank that hangs or dies cannot clean up: the next round removes what rank 0 leaves, a later one UCX's files.
    // System V segments of a rank that dies while UCX makes them stay.
    const bool rank_0_died = round_.victim == 0 && round_.fault == Fault::kKill;
    if (!findings_.empty() || rank_0_died || round_.fault == Fault::kKillJoin) return;
    if (const std::string left = SharedMemory::LeftBehind(before_, dead); !left.empty()) {
      Find(Kind::kLeak, absl::StrCat("leak: shared memory left behind:", left));
    }
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_, none)) {
      if (!entry.is_regular_file()) continue;
      Find(Kind::kLeak, absl::StrCat("leak: rendezvous file left behind: ", entry.path().string()));
      std::filesystem::remove(entry.path(), none);  // so that no later round reports the file again
    }
    if (waitpid(-1, nullptr, WNOHANG) >= 0) Find(Kind::kLeak, "leak: a process that a rank started has outlived it");
  }

  const Round round_;
  const std::string directory_;
  Report& report_;
  const SharedMemory before_;
  std::unique_ptr<RankProcesses> ranks_;
  std::vector<Told> told_;
  std::vector<Finding> findings_;
  std::int64_t fault_ns_ = 0;
};

}  // namespace

std::vector<Finding> RunRound(const Round& round, const std::string& directory, Report& report) {
  ++report.rounds[static_cast<std::size_t>(round.fault)];
  std::vector<Finding> found = Supervisor(round, directory, report).Run();
  report.Count(found);
  return found;
}

}  // namespace tutti::churn
