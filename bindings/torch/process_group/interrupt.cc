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

absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline) {
  if (gettid() != getpid() || Py_IsInitialized() == 0) return work.Wait(deadline);
  while (true) {
    const absl::Time pause = std::min(deadline, absl::Now() + kPatience);
    const absl::Status status = work.Wait(pause);
    if (work.done() || pause == deadline) return status;
    RunSignalHandlers();
  }
}

}  // namespace tutti::dist
