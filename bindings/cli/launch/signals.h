// The signals that `tutti launch` handles.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_SIGNALS_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_SIGNALS_H_

#include <signal.h>

namespace tutti {

// While a HandledSignals lives, the signals that the launcher passes on (SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2) and
// SIGCHLD interrupt nobody: they are read from a descriptor. A signal that the caller ignored (nohup) stays ignored,
// but for SIGCHLD, without which children leave no exit code. SIGPIPE and SIGTTOU are blocked: a write to a stream that
// has no reader is an error, and a write to the terminal does not stop the launcher.
//
// Make a HandledSignals before any thread is started. After a fork the child reads its own signals from the same
// object.
class HandledSignals {
 public:
  HandledSignals();
  ~HandledSignals();
  HandledSignals(const HandledSignals&) = delete;
  HandledSignals& operator=(const HandledSignals&) = delete;

  // Readable when a signal waits; close-on-exec, non-blocking. -1 when the system refused the descriptor.
  int fd() const { return fd_; }
  // The signals that were blocked before.
  const sigset_t& before() const { return before_; }
  // Takes one signal that waits; 0 when there is none.
  int Next() const;

 private:
  sighandler_t on_child_before_;
  sigset_t before_;
  int fd_;
};

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_SIGNALS_H_
