#include "engine/callback_threads.h"

#include <cstdint>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace tutti {
namespace {

// A function that has run for so long counts as blocked.
constexpr std::int64_t kPatienceNs = 1'000'000;

}  // namespace

// The threads of one CallbackThreads, which keep the crew alive. At most one thread is on duty and takes functions from
// the queue, and at most one stands by, to go on duty when the thread on duty is blocked. All others are in functions
// that have blocked; each of them stands by afterwards, or ends when another one does.
class CallbackThreads::Crew : public std::enable_shared_from_this<CallbackThreads::Crew> {
 public:
  bool Start() {
    const MutexLock lock(mutex_);
    if (threads_ > 0 || ends_) return true;
    try {
      Recruit();
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  // Takes `function` out and queues it; leaves `function` as it is where the threads have ended.
  void Queue(std::function<void()>& function) {
    const MutexLock lock(mutex_);
    if (ends_ && threads_ == 0) return;
    functions_.push_back(std::exchange(function, nullptr));
    if (duty_ != kNobody && busy_since_ns_ == 0) return work_.NotifyOne();
    // Where nobody is on duty, the thread that stands by is about to be; once the threads end there may be none, though
    // functions still run, and one of these queues `function`.
    (void)CallStandby();
  }

  void StepAside() {
    const MutexLock lock(mutex_);
    if (duty_ != std::this_thread::get_id()) return;
    if (CallStandby()) LeaveDuty();
  }

  void Stop() {
    const MutexLock lock(mutex_);
    ends_ = true;
    work_.NotifyAll();
    standby_.NotifyAll();
    if (of_this_thread == this) return;
    ended_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return threads_ == 0; });
  }

  // The crew that the calling thread belongs to; null: none.
  static thread_local Crew* of_this_thread;

 private:
  // Starts the thread that stands by.
  void Recruit() TUTTI_REQUIRES(mutex_) {
    std::thread([crew = shared_from_this()] {
      of_this_thread = crew.get();
      bool stands_by = true;
      while (std::function<void()> function = crew->Next(stands_by)) function();
    }).detach();
    ++threads_;
    has_standby_ = true;
  }

  // Has the thread that stands by look whether it must go on duty. False when the system starts no more threads: then
  // functions wait for those before them, as they do without a thread that stands by.
  bool CallStandby() TUTTI_REQUIRES(mutex_) {
    try {
      if (!has_standby_) Recruit();
    } catch (const std::system_error&) {
      return false;
    }
    standby_.NotifyOne();
    return true;
  }

  void LeaveDuty() TUTTI_REQUIRES(mutex_) {
    duty_ = kNobody;
    busy_since_ns_ = 0;
    standby_.NotifyOne();
  }

  // Waits for the next function that the calling thread has to run, after the last one has returned; nothing when the
  // thread has to end. `stands_by`: whether the calling thread is the one that stands by.
  std::function<void()> Next(bool& stands_by) {
    const MutexLock lock(mutex_);
    std::function<void()> next = TakeNext(stands_by);
    if (next == nullptr && --threads_ == 0) ended_.NotifyAll();
    return next;
  }

  std::function<void()> TakeNext(bool& stands_by) TUTTI_REQUIRES(mutex_) {
    if (duty_ == std::this_thread::get_id()) {
      busy_since_ns_ = 0;
    } else {
      if (has_standby_ && !stands_by) return nullptr;
      has_standby_ = true;
      if (!AwaitDuty()) return nullptr;
      stands_by = false;
    }
    work_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return ends_ || !functions_.empty(); });
    if (functions_.empty()) {
      LeaveDuty();
      return nullptr;
    }
    std::function<void()> next = std::move(functions_.front());
    functions_.pop_front();
    busy_since_ns_ = MonotonicNanos();
    // The thread that stands by runs the later functions if this one blocks, or may end when there will be none.
    if (!functions_.empty()) (void)CallStandby();
    if (ends_) standby_.NotifyOne();
    return next;
  }

  // Waits until nobody is on duty, or the thread on duty is blocked while functions wait, and puts the calling thread
  // on duty. False when the threads end before.
  bool AwaitDuty() TUTTI_REQUIRES(mutex_) {
    while (duty_ != kNobody) {
      if (ends_ && functions_.empty()) break;
      const std::int64_t since_ns = busy_since_ns_;
      if (since_ns == 0 || functions_.empty()) {
        standby_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) {
          return duty_ == kNobody || (functions_.empty() ? ends_ : busy_since_ns_ != 0);
        });
        continue;
      }
      const bool moved = standby_.WaitUntil(mutex_, since_ns + kPatienceNs, [&]() TUTTI_REQUIRES(mutex_) {
        return busy_since_ns_ != since_ns || duty_ == kNobody;
      });
      if (!moved) duty_ = kNobody;
    }
    has_standby_ = false;
    if (duty_ != kNobody) return false;
    duty_ = std::this_thread::get_id();
    busy_since_ns_ = 0;
    return true;
  }

  inline static const std::thread::id kNobody{};

  Mutex mutex_;
  Condition work_;     // for the thread on duty: functions have come, or the threads end
  Condition standby_;  // for the thread that stands by
  Condition ended_;    // no thread is left
  std::deque<std::function<void()>> functions_ TUTTI_GUARDED_BY(mutex_);
  std::thread::id duty_ TUTTI_GUARDED_BY(mutex_) = kNobody;
  std::int64_t busy_since_ns_ TUTTI_GUARDED_BY(mutex_) = 0;  // the thread on duty is in a function; 0: in none
  bool has_standby_ TUTTI_GUARDED_BY(mutex_) = false;
  int threads_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool ends_ TUTTI_GUARDED_BY(mutex_) = false;
};

thread_local CallbackThreads::Crew* CallbackThreads::Crew::of_this_thread = nullptr;

CallbackThreads::CallbackThreads() : crew_(std::make_shared<Crew>()) {}
CallbackThreads::~CallbackThreads() { crew_->Stop(); }
bool CallbackThreads::Start() { return crew_->Start(); }
void CallbackThreads::Run(std::function<void()> function) {
  crew_->Queue(function);
  if (function != nullptr) function();
}
void CallbackThreads::MayBlock() {
  if (Crew::of_this_thread != nullptr) Crew::of_this_thread->StepAside();
}
void CallbackThreads::Stop() { crew_->Stop(); }

}  // namespace tutti
