#include "bindings/torch/process_group/interrupt.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
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

absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline) {
  if (!HandlesSignals()) return work.Wait(deadline);
  while (true) {
    const absl::Time pause = std::min(deadline, absl::Now() + kPatience);
    const absl::Status status = work.Wait(pause);
    // Any other error of Wait is not about time: this process is a forked child, for one.
    if (work.done() || pause == deadline || !absl::IsDeadlineExceeded(status)) return status;
    RunSignalHandlers();
  }
}

absl::Status SignalWatch::Look() {
  if (absl::Now() < next_look_) return absl::OkStatus();
  next_look_ = absl::Now() + kPatience;
  return LookForSignals();
}

void RethrowInterrupt() {
  if (raised_by_handler != nullptr) std::rethrow_exception(std::exchange(raised_by_handler, nullptr));
}

void HearOfSignalsInWaits() {
  SetWaitWatch(&LookForSignals);
  nn::throw_what_a_signal_raised = &RethrowInterrupt;
}

}  // namespace tutti::dist
