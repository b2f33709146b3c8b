#include "tests/churn/round.h"

#include "absl/strings/str_cat.h"
#include "tests/churn/choices.h"

namespace tutti::churn {
namespace {

constexpr std::array<absl::string_view, kAllPaths.size()> kPathNames = {"mapped", "shared_memory", "tcp", "inproc"};
constexpr std::array<absl::string_view, kAllFaults.size()> kFaultNames = {"none", "pause", "kill", "kill_join",
                                                                          "stop", "leave", "abort"};

// The faults that are drawn. Kills come most often, because a run is judged by their number; stops are rare, because
// each takes as long as the timeout.
constexpr std::array<Fault, 12> kDrawn = {Fault::kNone, Fault::kNone,     Fault::kPause, Fault::kKill,
                                          Fault::kKill, Fault::kKill,     Fault::kKill,  Fault::kKill,
                                          Fault::kStop, Fault::kKillJoin, Fault::kLeave, Fault::kAbort};

}  // namespace

absl::string_view Name(Path path) { return kPathNames[static_cast<std::size_t>(path)]; }
absl::string_view Name(Fault fault) { return kFaultNames[static_cast<std::size_t>(fault)]; }

absl::StatusOr<Path> ParsePath(absl::string_view name) {
  for (const Path path : kAllPaths) {
    if (Name(path) == name) return path;
  }
  return absl::InvalidArgumentError(absl::StrCat("no path '", name, "': mapped, shared_memory, tcp or inproc"));
}

absl::StatusOr<Fault> ParseFault(absl::string_view name) {
  for (const Fault fault : kAllFaults) {
    if (Name(fault) == name) return fault;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no fault '", name, "': none, pause, kill, kill_join, stop, leave or abort"));
}

Round RoundOf(const Fixed& fixed, int number) {
  Choices choices({fixed.seed, static_cast<std::uint64_t>(number)});
  Round round{.seed = fixed.seed, .number = number, .path = fixed.path};
  round.ranks = choices.Between(2, 5);
  if (fixed.ranks > 0) round.ranks = fixed.ranks;
  round.threads = choices.Between(1, 3);
  round.fault = choices.Of<Fault>(kDrawn);
  if (const absl::StatusOr<Fault> fault = ParseFault(fixed.fault); fault.ok()) round.fault = *fault;
  if (fixed.path == Path::kInproc) round.fault = Fault::kNone;  // a thread can be neither killed nor stopped
  round.victim = choices.Below(round.ranks);
  round.fault_after = absl::Microseconds(choices.Below(round.fault == Fault::kKillJoin ? 30'000 : 200'000));
  round.pause = absl::Milliseconds(choices.Between(1, 300));
  if (round.fault == Fault::kStop) round.timeout = absl::Seconds(2);
  // 30 s is longer than any wait takes that does not hang, however busy the machine is.
  if (round.ends_by_itself()) round.timeout = absl::Seconds(30);
  round.activities = choices.Between(3, 12);
  round.survivors_leave_at_once = choices.OneIn(2);
  if (round.fault == Fault::kNone) round.worlds = 3;
  return round;
}

std::string Describe(const Round& round) {
  std::string text = absl::StrCat("round ", round.number, ": ", Name(round.path), ", ", round.ranks, " ranks of ",
                                  round.threads, " threads, ", Name(round.fault));
  if (round.fault == Fault::kNone) return text;
  absl::StrAppend(&text, " of rank ", round.victim);
  if (round.fault != Fault::kLeave && round.fault != Fault::kAbort) {
    absl::StrAppend(&text, " after ", absl::FormatDuration(round.fault_after));
  }
  return text;
}

}  // namespace tutti::churn
