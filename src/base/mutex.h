// std::mutex and std::condition_variable as clang's thread-safety analysis understands them: what is declared
// TUTTI_GUARDED_BY a mutex (or, of a pointer, TUTTI_PT_GUARDED_BY what it points to) compiles only where that mutex is
// held. Mutex and Condition cost what the standard types cost.
#ifndef TUTTI_BASE_MUTEX_H_
#define TUTTI_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#ifdef __clang__
#define TUTTI_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define TUTTI_THREAD_ANNOTATION(attribute)
#endif

#define TUTTI_GUARDED_BY(mutex) TUTTI_THREAD_ANNOTATION(guarded_by(mutex))
#define TUTTI_PT_GUARDED_BY(mutex) TUTTI_THREAD_ANNOTATION(pt_guarded_by(mutex))
#define TUTTI_REQUIRES(mutex) TUTTI_THREAD_ANNOTATION(requires_capability(mutex))
#define TUTTI_ACQUIRE(...) TUTTI_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TUTTI_TRY_ACQUIRE(...) TUTTI_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TUTTI_RELEASE(...) TUTTI_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TUTTI_NO_THREAD_SAFETY_ANALYSIS TUTTI_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace tutti {

class TUTTI_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void Lock() TUTTI_ACQUIRE() { mutex_.lock(); }
  bool TryLock() TUTTI_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() TUTTI_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class TUTTI_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TUTTI_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() TUTTI_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable. Waits release `mutex` while they sleep. `predicate` is called with the mutex held: a lambda
// that reads what the mutex guards says TUTTI_REQUIRES(mutex) after its parameters.
class Condition {
 public:
  template <typename Predicate>
  void Wait(Mutex& mutex, Predicate predicate) TUTTI_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock, std::move(predicate));
    lock.release();
  }

  // False when `predicate` is still false at `end_ns` of MonotonicNanos.
  template <typename Predicate>
  bool WaitUntil(Mutex& mutex, std::int64_t end_ns, Predicate predicate) TUTTI_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(end_ns)};
    const bool holds = condition_.wait_until(lock, end, std::move(predicate));
    lock.release();
    return holds;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace tutti

#endif  // TUTTI_BASE_MUTEX_H_
