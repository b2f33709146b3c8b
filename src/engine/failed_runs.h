// How the runs of a call ended that did not end OK.
#ifndef TUTTI_ENGINE_FAILED_RUNS_H_
#define TUTTI_ENGINE_FAILED_RUNS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace tutti {

// Whether run number `a` of a call comes after run number `b`; the numbers wrap around.
inline bool IsAfter(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) > 0; }

// The errors of the last failed runs of one call: somebody may ask for the result of an earlier run of a bound plan. A
// question about a run without an error takes no lock, unless a later run has failed. Thread-safe.
class FailedRuns {
 public:
  // The errors that are kept.
  static constexpr std::size_t kMax = 16;
  // So many runs later a failed run is forgotten: the numbers of runs can be compared over less than 2^31 runs only.
  static constexpr std::uint32_t kRemembered = 1U << 30;

  // Keeps the error of `run`; of several errors of one run the first one counts.
  void Keep(std::uint32_t run, absl::Status error) {
    const MutexLock lock(mutex_);
    while (!runs_.empty() && run - runs_.front().number >= kRemembered) runs_.pop_front();
    if (dropped_.has_value() && run - *dropped_ >= kRemembered) dropped_.reset();
    runs_.push_back({run, std::move(error)});
    if (runs_.size() > kMax) {
      dropped_ = runs_.front().number;
      runs_.pop_front();
    }
    last_.store(run, std::memory_order_relaxed);
  }

  // How `run` of the plan `plan` has ended; OK for a run that has not failed. FailedPrecondition where that is not
  // known any more.
  absl::Status ResultOf(std::uint32_t run, absl::string_view plan) const {
    const std::uint64_t last = last_.load(std::memory_order_relaxed);
    if (last == kNone || IsAfter(run, static_cast<std::uint32_t>(last))) return absl::OkStatus();
    const MutexLock lock(mutex_);
    for (const Run& failed : runs_) {
      if (failed.number == run) return failed.error;
    }
    if (!dropped_.has_value() || IsAfter(run, *dropped_)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "how run ", run, " of ", plan, " has ended is not known any more: ", kMax, " later runs have failed"));
  }

  // Called as each run begins, with its number: forgets runs that failed long ago.
  void BeginRun(std::uint32_t run) {
    const std::uint64_t last = last_.load(std::memory_order_relaxed);
    if (last != kNone && run - static_cast<std::uint32_t>(last) >= kRemembered) Clear();
  }

  // Forgets all runs, about which nobody will ask.
  void Clear() {
    if (last_.load(std::memory_order_relaxed) == kNone) return;
    const MutexLock lock(mutex_);
    runs_.clear();
    dropped_.reset();
    last_.store(kNone, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

  struct Run {
    std::uint32_t number;
    absl::Status error;
  };

  std::atomic<std::uint64_t> last_{kNone};  // the number of the last failed run
  mutable Mutex mutex_;
  std::deque<Run> runs_ TUTTI_GUARDED_BY(mutex_);                  // in the order in which they failed
  std::optional<std::uint32_t> dropped_ TUTTI_GUARDED_BY(mutex_);  // the last failed run whose error is not kept
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_FAILED_RUNS_H_
