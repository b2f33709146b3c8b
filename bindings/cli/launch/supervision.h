// The processes that `tutti launch` has started end with the launcher, also when SIGKILL gives the launcher no time to
// end them.
//
// The launcher is two processes. The one that the user started (the front) only passes signals on and waits; its child
// (the supervisor) starts the ranks. Each of the two processes notices when the other one dies, and then kills
// everything that is left: both are subreapers, so a process whose parent has died becomes a child of the supervisor
// or, after the supervisor's death, of the front, whatever group or session it has moved to. If both are killed at
// once, the kernel kills the ranks (PR_SET_PDEATHSIG), though not what the ranks have started.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_SUPERVISION_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_SUPERVISION_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bindings/cli/launch/signals.h"

namespace tutti {

// Runs `supervise` in a child process and returns the result of `supervise`. `front` is a descriptor, close-on-exec, at
// whose end (POLLHUP) the calling process is dead. The child leads a process group of its own, so that a signal to the
// caller's group (Ctrl-C) reaches it once, passed on by the caller.
//
// When the child dies before it returns, all that it had started is killed, and the result is 128 + the signal's
// number. ResourceExhausted when the system refuses a process or a descriptor. The calling process must have one
// thread.
absl::StatusOr<int> RunSupervised(const HandledSignals& signals,
                                  absl::FunctionRef<absl::StatusOr<int>(int front)> supervise);

// Kills the children of this process, then the orphans that thereby become its children, until there are none left.
// Gives up after 10 s, on processes that the system does not let it kill (of another user) or that the kernel holds
// back.
void KillDescendants(const HandledSignals& signals);

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_SUPERVISION_H_
