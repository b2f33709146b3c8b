// How much of a processor the engine's thread takes, and how much of that goes into waiting for peers.
#ifndef TUTTI_ENGINE_THREAD_TIME_H_
#define TUTTI_ENGINE_THREAD_TIME_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include "absl/time/time.h"
#include "base/clock.h"

namespace tutti {

// The times of one thread. The thread reads its processor clock where a wait begins, before it sleeps in a wait, and
// where the wait ends, which are few places beside the steps of a run.
class ThreadTime {
 public:
  // Called once, before cpu and wall are; `thread`, whose times these are, may already run.
  void Start(pthread_t thread) {
    has_clock_ = pthread_getcpuclockid(thread, &clock_) == 0;
    started_ns_ = MonotonicNanos();
  }

  // The next three functions are the thread's own. A second BeginWait within a wait does nothing, and neither does
  // BeforeSleep or EndWait without a wait.
  void BeginWait() {
    if (!waits()) counted_ns_ = ThreadCpuNanos();
  }
  void BeforeSleep() {
    if (waits()) CountWaited();
  }
  void EndWait() {
    if (!waits()) return;
    CountWaited();
    counted_ns_ = kNoWait;
  }

  // The next three functions may be called by any thread while the thread of these times runs.
  //
  // The processor time that the thread has used; 0 in a forked child, where the thread does not run.
  absl::Duration cpu() const { return absl::Nanoseconds(has_clock_ ? NanosOnClock(clock_) : 0); }
  // The part of cpu() that went into waits, as of the last sleep or the end of the last wait.
  absl::Duration waiting() const { return absl::Nanoseconds(waited_ns_.load(std::memory_order_relaxed)); }
  // The time since Start.
  absl::Duration wall() const { return absl::Nanoseconds(MonotonicNanos() - started_ns_); }

 private:
  static constexpr std::int64_t kNoWait = -1;

  bool waits() const { return counted_ns_ != kNoWait; }
  void CountWaited() {
    const std::int64_t now_ns = ThreadCpuNanos();
    waited_ns_.store(waited_ns_.load(std::memory_order_relaxed) + now_ns - counted_ns_, std::memory_order_relaxed);
    counted_ns_ = now_ns;
  }

  bool has_clock_ = false;
  clockid_t clock_ = 0;
  std::int64_t started_ns_ = 0;
  std::int64_t counted_ns_ = kNoWait;  // up to where the wait under way is in waited_ns_
  std::atomic<std::int64_t> waited_ns_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_THREAD_TIME_H_
