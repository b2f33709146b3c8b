// A child that a test has forked from a process with threads holds memory to which only the stacks of those threads
// pointed, and which LeakSanitizer would call leaked. Therefore leaks are looked for only in the process that ran main.
#include <unistd.h>

namespace {

const pid_t kProcess = getpid();

}  // namespace

// LeakSanitizer calls this function when a process ends.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {  // NOLINT: the sanitizer's name
  return getpid() != kProcess ? 1 : 0;
}
