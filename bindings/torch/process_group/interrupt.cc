#include "bindings/torch/process_group/interrupt.h"

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <algorithm>

#include "absl/time/clock.h"

namespace tutti::dist {
namespace {

// The longest time until a signal is handled. To look for signals takes the interpreter's lock, and far less time than
// this.
constexpr absl::Duration kPatience = absl::Milliseconds(200);

void RunSignalHandlers() {
  const pybind11::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace

WithoutInterpreterLock::WithoutInterpreterLock() {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) thread_state_ = PyEval_SaveThread();
}

WithoutInterpreterLock::~WithoutInterpreterLock() {
  if (thread_state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state_));
}

absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline) {
  if (gettid() != getpid() || Py_IsInitialized() == 0) return work.Wait(deadline);
  while (true) {
    const absl::Time pause = std::min(deadline, absl::Now() + kPatience);
    const absl::Status status = work.Wait(pause);
    // Any other error of Wait is not about time: this process is a forked child, for one.
    if (work.done() || pause == deadline || !absl::IsDeadlineExceeded(status)) return status;
    RunSignalHandlers();
  }
}

}  // namespace tutti::dist
