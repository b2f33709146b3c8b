// Ctrl-C while a thread waits.
#ifndef TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
#define TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tutti/work.h"

namespace tutti::dist {

// Waits for `work` like Work::Wait(deadline). On the main thread, where Python runs the handlers of signals, the
// handlers run within a quarter of a second, and what they raise (KeyboardInterrupt) is thrown; the call goes on then.
absl::Status WaitInterruptibly(tutti::Work& work, absl::Time deadline);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_INTERRUPT_H_
