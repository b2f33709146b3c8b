// How much of a processor the engine's thread takes, and how much of that goes into waiting for peers.
#ifndef TUTTI_ENGINE_THREAD_TIME_H_
#define TUTTI_ENGINE_THREAD_TIME_H_

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>

#include "absl/time/time.h"
#include "base/clock.h"

namespace tutti {

// The times of one thread. The thread reads its processor clock where a wait begins and where the wait ends, which are
// few places beside the steps of a run.
class ThreadTime {
 public:
  struct Processor {
    absl::Duration used;
    absl::Duration waiting;  // the part of `used` that went into waits, of which one may be under way
  };

  // Called once, before processor and wall are; `thread`, whose times these are, may already run.
  void Start(pthread_t thread) {
    has_clock_ = pthread_getcpuclockid(thread, &clock_) == 0;
    started_ns_ = MonotonicNanos();
  }

  // The next two functions are the thread's own. A second BeginWait within a wait does nothing, and neither does
  // EndWait without a wait.
  void BeginWait() {
    if (!waits_) Change(true);
  }
  void EndWait() {
    if (waits_) Change(false);
  }

  // The next two functions may be called by any thread while the thread of these times runs.
  //
  // The processor time that the thread has used; nothing in a forked child, where the thread does not run. Between two
  // calls neither `waiting` nor the rest of `used` shrinks.
  Processor processor() const {
    if (!has_clock_) return {};
    std::int64_t resting = resting_.load();
    std::int64_t used = NanosOnClock(clock_);
    // A wait that begins or ends between the two readings would count for the time before it.
    for (int reading = 1; reading < kReadings && resting_.load() != resting; ++reading) {
      resting = resting_.load();
      used = NanosOnClock(clock_);
    }
    if (used == 0) return {};  // in a forked child
    const std::int64_t other = used - (resting < 0 ? ~resting : resting);
    const std::int64_t waiting = Most(told_waiting_, resting < 0 ? other : resting);
    const std::int64_t working = Most(told_working_, resting < 0 ? ~resting : other);
    return {.used = absl::Nanoseconds(working + waiting), .waiting = absl::Nanoseconds(waiting)};
  }
  // The time since Start.
  absl::Duration wall() const { return absl::Nanoseconds(MonotonicNanos() - started_ns_); }

 private:
  static constexpr int kReadings = 8;

  // The most that `told` has ever been, and `now`.
  static std::int64_t Most(std::atomic<std::int64_t>& told, std::int64_t now) {
    std::int64_t most = told.load();
    while (most < now && !told.compare_exchange_weak(most, now)) {
    }
    return std::max(most, now);
  }

  void Change(bool waits) {
    const std::int64_t resting = resting_.load(std::memory_order_relaxed);
    const std::int64_t other_ns = ThreadCpuNanos() - (waits ? resting : ~resting);
    waits_ = waits;
    resting_.store(waits ? ~other_ns : other_ns);
  }

  bool has_clock_ = false;
  clockid_t clock_ = 0;
  std::int64_t started_ns_ = 0;
  bool waits_ = false;
  // The one of two processor times that does not grow now: outside a wait, that of all waits; within a wait, the
  // complement (~) of the time outside waits. One word, so that other threads read both times of one moment.
  std::atomic<std::int64_t> resting_{0};
  // The times that `processor` has told. The clock and resting_ cannot be read at once, nor can the thread change
  // resting_ at the time of its clock that resting_ then holds, so that readings are off by up to a microsecond.
  mutable std::atomic<std::int64_t> told_waiting_{0};
  mutable std::atomic<std::int64_t> told_working_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_THREAD_TIME_H_
