#include "bindings/torch/process_group/attempts.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bindings/torch/process_group/torch_store.h"

namespace tutti::dist {
namespace {

// The pause between two looks for an attempt.
constexpr absl::Duration kPause = absl::Milliseconds(10);
// The wait after which a rank says what it waits for.
constexpr absl::Duration kSilence = absl::Seconds(5);

std::string NewName() {
  std::random_device random;
  const std::uint64_t high = random(), low = random();
  return absl::StrCat(absl::Hex(high << 32 | low, absl::kZeroPad16));
}

// The key of the error with which a rank has given the attempt up.
std::string KeyOfError(const std::string& attempt) { return absl::StrCat("tutti/attempts/", attempt, "/error"); }

}  // namespace

Attempts::Attempts(const c10::intrusive_ptr<::c10d::Store>& store, Rank rank, int size)
    : store_(MakeTorchStore(store)), rank_(rank), key_(absl::StrCat("tutti/newest attempt of ", size, " ranks")) {}

absl::StatusOr<std::string> Attempts::Next(WaitClock::time_point end) {
  if (rank_ == 0) {
    std::string name = NewName();
    if (absl::Status told = store_->Set(key_, name, absl::InfiniteFuture()); !told.ok()) return told;
    return name;
  }
  SignalWatch signals;
  std::string passed;  // the newest attempt, in which this rank is not to take part
  std::string waits = absl::StrCat("rank ", rank_, ": rank 0 has not begun to make the group: missing ranks: 0");
  absl::Time silent_until = absl::InfiniteFuture();
  while (true) {
    absl::StatusOr<std::string> newest = store_->Look(key_, absl::InfiniteFuture());
    if (!newest.ok() && !absl::IsNotFound(newest.status())) return newest;
    if (newest.ok() && *newest != passed) {
      const absl::StatusOr<std::string> error = store_->Look(KeyOfError(*newest), absl::InfiniteFuture());
      if (!error.ok() && !absl::IsNotFound(error.status())) return error.status();
      if (error.ok()) {
        waits = absl::StrCat("rank ", rank_,
                             ": rank 0 has not begun anew to make the group since an attempt failed: ", *error);
        silent_until = absl::Now() + kSilence;
      } else {
        const absl::StatusOr<std::int64_t> times =
            store_->Add(absl::StrCat("tutti/attempts/", *newest, "/", rank_), 1, absl::InfiniteFuture());
        if (!times.ok()) return times.status();
        if (*times == 1) return newest;
      }
      passed = *std::move(newest);
    }
    if (absl::Status status = signals.Look(); !status.ok()) return status;
    const absl::Duration left = absl::FromChrono(end - WaitClock::now());
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(waits);
    if (absl::Now() >= silent_until) {
      const std::string for_up_to = absl::FormatDuration(absl::Ceil(left, absl::Seconds(1)));
      const std::string line = absl::StrCat("tutti: ", waits, "; waiting for up to ", for_up_to, " more\n");
      std::fputs(line.c_str(), stderr);
      silent_until = absl::InfiniteFuture();
    }
    absl::SleepFor(std::min(kPause, left));
  }
}

void Attempts::GiveUp(const std::string& attempt, const absl::Status& why) {
  // Where the store is lost, nobody waits in it.
  store_->Set(KeyOfError(attempt), why.message(), absl::InfiniteFuture()).IgnoreError();
}

absl::Status Attempts::CheckIsNewest(const std::string& attempt) const {
  if (rank_ == 0) return absl::OkStatus();
  const absl::StatusOr<std::string> newest = store_->Look(key_, absl::InfiniteFuture());
  if (!newest.ok()) return newest.status();
  if (*newest == attempt) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("rank ", rank_, ": rank 0 has begun anew to make the group"));
}

}  // namespace tutti::dist
