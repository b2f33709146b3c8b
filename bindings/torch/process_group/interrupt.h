// Python's interpreter while a thread waits: its lock, and Ctrl-C.
#ifndef TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
#define TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_

#include <chrono>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tutti/work.h"

namespace tutti::dist {

// The longest time until a signal is handled. To look for signals takes the interpreter's lock, and far less time than
// this.
inline constexpr absl::Duration kPatience = absl::Milliseconds(200);

// The clock of deadlines that last over several waits. Nobody can set this clock, unlike the clock of absl::Now().
using WaitClock = std::chrono::steady_clock;

// Lets go of the interpreter's lock, if this thread has it, for as long as the WithoutInterpreterLock lives.
class WithoutInterpreterLock {
 public:
  WithoutInterpreterLock();
  ~WithoutInterpreterLock();
  WithoutInterpreterLock(const WithoutInterpreterLock&) = delete;
  WithoutInterpreterLock& operator=(const WithoutInterpreterLock&) = delete;

 private:
  void* thread_state_ = nullptr;  // a PyThreadState; null: this thread did not have the lock
};

// Waits for `work` like Work::Wait(deadline), until `end`; time_point::max(): without a deadline. On the main thread,
// where Python runs the handlers of signals, the handlers run within a quarter of a second, and what they raise
// (KeyboardInterrupt) is thrown; the call goes on then.
absl::Status WaitInterruptibly(tutti::Work& work, WaitClock::time_point end);

// For loops that wait inside the core, which knows no exceptions. Look runs Python's handlers of signals a few times a
// second, where this is the main thread; Cancelled when a handler raises. RethrowInterrupt then throws on this thread
// what the handler has raised, and does nothing otherwise.
class SignalWatch {
 public:
  absl::Status Look();

 private:
  WaitClock::time_point next_look_ = WaitClock::now() + absl::ToChronoNanoseconds(kPatience);
};
void RethrowInterrupt();
// Lets the interpreter raise soon what a handler has raised in a wait of this thread: for destructors, which throw
// nothing.
void RaiseInterruptSoon();

// From here on waits of the core without a deadline, in the exchange of a model for one, look for signals, too. What a
// handler raises aborts the exchange on all ranks, and is thrown in place of the error of the call.
void HearOfSignalsInWaits();

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
