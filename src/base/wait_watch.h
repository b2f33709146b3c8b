// What a waiting thread does now and then beside waiting: see SetWaitWatch in tutti/work.h.
#ifndef TUTTI_BASE_WAIT_WATCH_H_
#define TUTTI_BASE_WAIT_WATCH_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"

namespace tutti {

// How long a thread waits between two calls of LookWhileWaiting. Far longer than such a call takes, and short for
// somebody who has pressed Ctrl-C.
inline constexpr absl::Duration kWaitWatchPeriod = absl::Milliseconds(200);

// Whether the program has set a watch. Without one a thread may wait as long as it likes.
bool WaitsAreWatched();
// The answer of the watch of this program; OK where there is none. An error names `rank`, which waits.
absl::Status LookWhileWaiting(Rank rank);

}  // namespace tutti

#endif  // TUTTI_BASE_WAIT_WATCH_H_
