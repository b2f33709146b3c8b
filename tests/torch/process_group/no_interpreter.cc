// The process group's view of Python's interpreter (interrupt.h) in a program that has none.
#include "tests/torch/process_group/no_interpreter.h"

#include <mutex>

#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {
namespace {

std::mutex the_lock;
thread_local bool has_the_lock = false;

void Acquire() {
  the_lock.lock();
  has_the_lock = true;
}

void Release() {
  has_the_lock = false;
  the_lock.unlock();
}

}  // namespace

InterpreterLock::InterpreterLock() { Acquire(); }
InterpreterLock::~InterpreterLock() { Release(); }

WithoutInterpreterLock::WithoutInterpreterLock() {
  if (!has_the_lock) return;
  Release();
  thread_state_ = &the_lock;
}
WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (thread_state_ != nullptr) Acquire();
}

absl::Status WaitInterruptibly(tutti::Work& work, WaitClock::time_point end) {
  return work.Wait(absl::Now() + absl::FromChrono(end - WaitClock::now()));
}

absl::Status SignalWatch::Look() {
  next_look_ = WaitClock::now() + absl::ToChronoNanoseconds(kPatience);
  return absl::OkStatus();
}

void RethrowInterrupt() {}
void RaiseInterruptSoon() {}

}  // namespace tutti::dist
