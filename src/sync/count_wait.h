// Waits of the training thread for other ranks, in the statistics.
#ifndef TUTTI_SYNC_COUNT_WAIT_H_
#define TUTTI_SYNC_COUNT_WAIT_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Counts a wait that has lasted since `begin_ns` (CLOCK_MONOTONIC), and that no computation hides.
inline void CountWait(std::int64_t begin_ns, SyncStatistics& statistics) {
  const absl::Duration waited = absl::Nanoseconds(MonotonicNanos() - begin_ns);
  statistics.exposed += waited;
  statistics.communication += waited;
}

}  // namespace tutti

#endif  // TUTTI_SYNC_COUNT_WAIT_H_
