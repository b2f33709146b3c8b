#include "bindings/cli/launch/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <initializer_list>

namespace tutti {

HandledSignals::HandledSignals() : on_child_before_(::signal(SIGCHLD, SIG_DFL)) {
  sigset_t handled;
  ::sigemptyset(&handled);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction action;
    const bool ignored = ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) ::sigaddset(&handled, signal);
  }
  sigset_t blocked = handled;
  for (int signal : {SIGPIPE, SIGTTOU}) ::sigaddset(&blocked, signal);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  fd_ = ::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK);
}

HandledSignals::~HandledSignals() {
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::signal(SIGCHLD, on_child_before_);
}

int HandledSignals::Next() const {
  signalfd_siginfo info;
  return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

}  // namespace tutti
