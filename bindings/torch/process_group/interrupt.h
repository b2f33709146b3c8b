// Python's interpreter while a thread waits: its lock, and Ctrl-C.
#ifndef TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
#define TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tutti/work.h"

namespace tutti::dist {

// The longest time until a signal is handled. To look for signals takes the interpreter's lock, and far less time than
// this.
inline constexpr absl::Duration kPatience = absl::Milliseconds(200);

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

// Waits for `work` like Work::Wait(deadline). On the main thread, where Python runs the handlers of signals, the
// handlers run within a quarter of a second, and what they raise (KeyboardInterrupt) is thrown; the call goes on then.
absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline);

// For loops that wait inside the core, which knows no exceptions. Look runs Python's handlers of signals a few times a
// second, where this is the main thread; Cancelled when a handler raises. RethrowInterrupt then throws on this thread
// what the handler has raised, and does nothing otherwise.
class SignalWatch {
 public:
  absl::Status Look();

 private:
  absl::Time next_look_ = absl::Now() + kPatience;
};
void RethrowInterrupt();

// From here on waits of the core without a deadline, in the exchange of a model for one, look for signals, too. What a
// handler raises aborts the exchange on all ranks, and is thrown in place of the error of the call.
void HearOfSignalsInWaits();

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
