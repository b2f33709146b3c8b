// A child that a test has forked from a process with threads holds memory that only the stacks of those threads knew,
// and LeakSanitizer would call it leaked: leaks are looked for in the process that ran main, and not in its children.
#include <unistd.h>

namespace {

const pid_t kProcess = getpid();

}  // namespace

// Asked by LeakSanitizer when a process ends.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {  // NOLINT: the sanitizer's name
  return getpid() != kProcess ? 1 : 0;
}
