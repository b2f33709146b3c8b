#include "bindings/torch/process_group/interrupt.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "tutti/torch/errors.h"

namespace tutti::dist {
namespace {

void RunSignalHandlers() {
  const pybind11::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

bool HandlesSignals() { return gettid() == getpid() && Py_IsInitialized() != 0; }

// Never destroyed: what a handler has raised is a value of Python, which may have ended before this thread.
thread_local std::exception_ptr& raised_by_handler = *new std::exception_ptr;

absl::Status LookForSignals() {
  if (!HandlesSignals()) return absl::OkStatus();
  try {
    RunSignalHandlers();
  } catch (...) {
    raised_by_handler = std::current_exception();
    return absl::CancelledError("interrupted by a signal");
  }
  return absl::OkStatus();
}

}  // namespace

WithoutInterpreterLock::WithoutInterpreterLock() {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) thread_state_ = PyEval_SaveThread();
}

WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (thread_state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state_));
}

absl::Status WaitInterruptibly(tutti::Work& work, WaitClock::time_point end) {
  const auto left = [end] {
    return end == WaitClock::time_point::max() ? absl::InfiniteDuration() : absl::FromChrono(end - WaitClock::now());
  };
  if (!HandlesSignals()) return work.Wait(absl::Now() + left());
  while (true) {
    const absl::Duration pause = std::min(left(), kPatience);
    const absl::Status status = work.Wait(absl::Now() + pause);
    // Any other error of Wait is not about time: this process is a forked child, for one.
    if (work.done() || pause < kPatience || !absl::IsDeadlineExceeded(status)) return status;
    RunSignalHandlers();
  }
}

absl::Status SignalWatch::Look() {
  const WaitClock::time_point now = WaitClock::now();
  if (now < next_look_) return absl::OkStatus();
  next_look_ = now + absl::ToChronoNanoseconds(kPatience);
  return LookForSignals();
}

void RethrowInterrupt() {
  if (raised_by_handler != nullptr) std::rethrow_exception(std::exchange(raised_by_handler, nullptr));
}

void RaiseInterruptSoon() {
  if (raised_by_handler == nullptr) return;
  const auto raise = [](void* kept) {
    const std::unique_ptr<std::exception_ptr> raised(static_cast<std::exception_ptr*>(kept));
    try {
      std::rethrow_exception(*raised);
    } catch (pybind11::error_already_set& error) {
      error.restore();
    }
    return -1;
  };
  auto kept = std::make_unique<std::exception_ptr>(std::exchange(raised_by_handler, nullptr));
  if (Py_AddPendingCall(raise, kept.get()) == 0) (void)kept.release();
}

void HearOfSignalsInWaits() {
  SetWaitWatch(&LookForSignals);
  nn::throw_what_a_signal_raised = &RethrowInterrupt;
}

}  // namespace tutti::dist
