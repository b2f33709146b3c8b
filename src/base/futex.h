// Futexes: sleeping on a 32-bit word, within a process or, when the word lies in shared memory, between processes.
#ifndef TUTTI_BASE_FUTEX_H_
#define TUTTI_BASE_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "absl/time/time.h"

namespace tutti {

// Returns when *word != expected, after a wake, or after `timeout`; may return early.
inline void FutexWait(std::atomic<std::uint32_t>& word, std::uint32_t expected, absl::Duration timeout) {
  const timespec limit = absl::ToTimespec(timeout);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tutti

#endif  // TUTTI_BASE_FUTEX_H_
