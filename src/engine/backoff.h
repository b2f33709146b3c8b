// How a thread that waits for peers passes the first microseconds, after which it must sleep.
#ifndef TUTTI_ENGINE_BACKOFF_H_
#define TUTTI_ENGINE_BACKOFF_H_

#include <sched.h>

namespace tutti {

struct BackoffPolicy {
  int spins = 0;   // polls with a pause between them; 0 when ranks outnumber cores
  int yields = 0;  // polls after giving the core to another thread that can run
};

class Backoff {
 public:
  explicit Backoff(const BackoffPolicy& policy) : policy_(policy) {}

  // Called after a poll that found nothing; false when it is time to sleep.
  bool Pause() {
    if (count_ < policy_.spins) {
      ++count_;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb" : : : "memory");  // most processors do not pause at a yield
#endif
      return true;
    }
    if (count_ < policy_.spins + policy_.yields) {
      ++count_;
      sched_yield();
      return true;
    }
    return false;
  }

  void Reset() { count_ = 0; }

 private:
  const BackoffPolicy policy_;
  int count_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_BACKOFF_H_
