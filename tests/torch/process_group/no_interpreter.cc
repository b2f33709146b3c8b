// The process group's view of Python's interpreter (interrupt.h) in a program that has none.
#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {

WithoutInterpreterLock::WithoutInterpreterLock() = default;
WithoutInterpreterLock::~WithoutInterpreterLock() { thread_state_ = nullptr; }

absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline) { return work.Wait(deadline); }

absl::Status SignalWatch::Look() {
  next_look_ = absl::Now() + kPatience;
  return absl::OkStatus();
}

void RethrowInterrupt() {}

}  // namespace tutti::dist
