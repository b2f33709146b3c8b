#include "transports/faulty/fate.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "tutti/codecs/random.h"

namespace tutti::faulty {
namespace {

// The random numbers of one fault of the list and one message.
class Draws {
 public:
  Draws(std::uint64_t seed, std::size_t fault, Rank from, Rank to, std::int64_t number) : state_(seed) {
    for (const std::uint64_t part : {static_cast<std::uint64_t>(fault), static_cast<std::uint64_t>(from),
                                     static_cast<std::uint64_t>(to), static_cast<std::uint64_t>(number)}) {
      state_ = kernels::Mix(state_ + kernels::kGoldenRatio64) ^ part;
    }
  }

  std::uint64_t Next() { return kernels::Mix(state_ += kernels::kGoldenRatio64); }
  // The next random number, in [0, 1).
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

bool IsInRange(const Fault& fault, std::int64_t number) { return fault.first <= number && number <= fault.last; }

bool Concerns(const Fault& fault, Rank from, Rank to, std::int64_t number) {
  return (fault.from == kEveryRank || fault.from == from) && (fault.to == kEveryRank || fault.to == to) &&
         IsInRange(fault, number);
}

void Apply(const Fault& fault, Draws& draws, Fate& fate) {
  switch (fault.kind) {
    case FaultKind::kDrop:
      fate.lost = true;
      return;
    case FaultKind::kHalfOpen:
      fate.lost = fate.link_lost = true;
      return;
    case FaultKind::kDelay:
      fate.delay += (1 - draws.NextUnit()) * fault.delay;
      return;
    case FaultKind::kReorder:
      fate.overtaken = true;
      fate.patience = std::max(fate.patience, fault.delay);
      return;
    case FaultKind::kSlow:
      fate.latency += fault.delay;
      if (fault.bytes_per_second > 0) fate.seconds_per_byte += 1 / fault.bytes_per_second;
      return;
    case FaultKind::kDuplicate:
      fate.duplicated = true;
      return;
    case FaultKind::kCorrupt:
      fate.corrupted = true;
      fate.damage = draws.Next();
      return;
    case FaultKind::kTruncate:
      fate.truncated = true;
      fate.damage = draws.Next();
      return;
    case FaultKind::kKill:
      return;  // a rank's death (kKill) is decided in Dies
  }
}

absl::Status Check(const Fault& fault, std::size_t index) {
  const auto invalid = [&](absl::string_view field, const auto& value, absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("FaultPlan.faults[", index, "].", field, " is ", value, "; expected ", expected));
  };
  const bool kills = fault.kind == FaultKind::kKill;
  const bool waits = fault.kind == FaultKind::kDelay || fault.kind == FaultKind::kReorder;
  if (fault.from < kEveryRank) return invalid("from", fault.from, "a rank or kEveryRank (-1)");
  if (fault.to < kEveryRank) return invalid("to", fault.to, "a rank or kEveryRank (-1)");
  if (kills && fault.to != kEveryRank)
    return invalid("to", fault.to, "kEveryRank (-1), because kKill counts the messages with all peers");
  if (fault.first < (kills ? kAtConnect : 0)) {
    return invalid("first", fault.first, kills ? "a number from 0, or kAtConnect (-1)" : "a number from 0");
  }
  if (fault.last < fault.first) return invalid("last", fault.last, absl::StrCat("at least first, ", fault.first));
  if (!(fault.chance >= 0 && fault.chance <= 1)) return invalid("chance", fault.chance, "a probability from 0 to 1");
  if (fault.delay < absl::ZeroDuration() || fault.delay == absl::InfiniteDuration()) {
    return invalid("delay", absl::FormatDuration(fault.delay), "a finite time that is not negative");
  }
  if (waits && fault.delay == absl::ZeroDuration())
    return invalid("delay", "0", "a time above 0, because kDelay and kReorder do nothing without a delay");
  if (!(fault.bytes_per_second >= 0)) return invalid("bytes_per_second", fault.bytes_per_second, "a number from 0");
  if (fault.kind == FaultKind::kSlow && fault.delay == absl::ZeroDuration() && fault.bytes_per_second == 0) {
    return invalid("bytes_per_second", 0,
                   "a number above 0 (or a delay above 0), because kSlow does nothing without either");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const FaultPlan& plan) {
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    if (absl::Status status = Check(plan.faults[i], i); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Fate FateOf(const FaultPlan& plan, Rank from, Rank to, std::int64_t number) {
  Fate fate;
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const Fault& fault = plan.faults[i];
    if (fault.kind == FaultKind::kKill || !Concerns(fault, from, to, number)) continue;
    Draws draws(plan.seed, i, from, to, number);
    if (draws.NextUnit() >= fault.chance) continue;
    Apply(fault, draws, fate);
    fate.befallen.push_back(fault.kind);
  }
  return fate;
}

bool Dies(const FaultPlan& plan, Rank rank, std::int64_t number) {
  for (std::size_t i = 0; i < plan.faults.size(); ++i) {
    const Fault& fault = plan.faults[i];
    if (fault.kind != FaultKind::kKill || !Concerns(fault, rank, kEveryRank, number)) continue;
    if (Draws(plan.seed, i, rank, kEveryRank, number).NextUnit() < fault.chance) return true;
  }
  return false;
}

bool Has(const FaultPlan& plan, FaultKind kind) {
  return std::any_of(plan.faults.begin(), plan.faults.end(), [&](const Fault& fault) { return fault.kind == kind; });
}

}  // namespace tutti::faulty
