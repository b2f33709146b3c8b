#include "comm/first_cause.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/told_by.h"
#include "comm/bootstrap_exchange.h"

namespace tutti {
namespace {

constexpr absl::string_view kKey = "gave_up";
constexpr absl::Duration kPatience = absl::Milliseconds(100);
constexpr absl::Duration kPause = absl::Milliseconds(500);  // between two looks of a watch
// The time that the store has to tell of a cause, or who is gone: more than a round trip to a store that is busy or
// far.
constexpr absl::Duration kLook = absl::Milliseconds(50);
// The pause after a look is at least so many times as long as the look was, which takes long in a store of many files.
constexpr int kPausesPerLook = 10;

// The cause that another rank has left when it gave up; nullopt when it cannot be read.
std::optional<absl::Status> ReadCause(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, absl::MaxSplits(' ', 2));
  Rank teller = 0;
  int code = 0;
  if (words.size() != 3 || !absl::SimpleAtoi(words[0], &teller) || !absl::SimpleAtoi(words[1], &code) || code <= 0) {
    return std::nullopt;
  }
  return ToldBy(teller, absl::Status(static_cast<absl::StatusCode>(code), words[2]));
}

}  // namespace

absl::Status FirstCause(Store& store, Rank rank, const absl::Status& mine) {
  const bool may_follow = absl::IsUnavailable(mine);
  absl::Status cause = mine;
  const auto on_gone = [&](Rank first) {
    cause = RankIsGone(first);
    return cause;
  };
  const absl::Time soon = absl::Now() + kPatience;
  const absl::StatusOr<std::string> found = may_follow ? store.Get(kKey, soon, on_gone) : store.Look(kKey, soon);
  if (found.ok()) return ReadCause(*found).value_or(mine);
  // The error of a lost store names the rank that ended first.
  if (may_follow && absl::IsUnavailable(found.status()) && cause == mine) return found.status();
  (void)store.Set(kKey, absl::StrCat(rank, " ", cause.raw_code(), " ", cause.message()), absl::Now() + kPatience);
  return cause;
}

void LetOthersHear() { absl::SleepFor(2 * kPause); }

CauseWatch::CauseWatch(Store& store) : store_(store), next_ns_(NanosIn(kPause)) {}

absl::Status CauseWatch::Look() {
  const std::int64_t begin_ns = MonotonicNanos();
  if (begin_ns < next_ns_) return absl::OkStatus();
  const absl::StatusOr<std::string> found = store_.Get(kKey, absl::Now() + kLook, RankIsGone);
  const std::int64_t end_ns = MonotonicNanos();
  next_ns_ = std::max(NanosIn(kPause), end_ns + kPausesPerLook * (end_ns - begin_ns));
  if (found.ok()) return ReadCause(*found).value_or(absl::UnavailableError("another rank has given up"));
  return absl::IsDeadlineExceeded(found.status()) ? absl::OkStatus() : found.status();
}

}  // namespace tutti
