// The cause with which the ranks of a world give up while they connect, alike on all: they leave it in the store.
#ifndef TUTTI_COMM_FIRST_CAUSE_H_
#define TUTTI_COMM_FIRST_CAUSE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tutti/store.h"

namespace tutti {

// The cause with which this rank gives up while all ranks connect: `mine`, unless another rank gave up before, or
// `mine` is only a consequence of another rank's end, whose connection is seen to close before the reason is known. A
// rank leaves its cause in the store for the others before it ends. Takes up to 200 ms.
absl::Status FirstCause(Store& store, Rank rank, const absl::Status& mine);

// To be called by rank 0 after FirstCause, before its process may end and the store with it, which rank 0 may serve:
// the others then hear the cause by the next look of their watches. Takes a second.
void LetOthersHear();

// Hears, while this rank connects, of another rank that has given up by FirstCause, or that is gone (Store::OnGone): no
// rank leaves in order before all are connected.
class CauseWatch {
 public:
  explicit CauseWatch(Store& store);

  // The error to give up with; OK while nothing is heard. Asks the store at most twice a second, waits up to 50 ms for
  // the answer, and does not ask in the first half second, in which most worlds are connected.
  absl::Status Look();

 private:
  Store& store_;
  std::int64_t next_ns_;
};

}  // namespace tutti

#endif  // TUTTI_COMM_FIRST_CAUSE_H_
