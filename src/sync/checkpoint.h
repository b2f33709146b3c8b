// The state of a synchronizer as bytes, which a world of the same size or another one can read.
#ifndef TUTTI_SYNC_CHECKPOINT_H_
#define TUTTI_SYNC_CHECKPOINT_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/exchange_bucket.h"

namespace tutti {

// The synchronizer that a state belongs to.
struct CheckpointOwner {
  std::string strategy;  // full form
  Rank rank = 0;
  int size = 1;
  std::int64_t step = 0;
  double loss_scale = 1;                // the scale of the gradients that residuals belong to
  bool steps_alone = false;             // each rank counts its own steps; not saved, because the strategy implies it
  std::vector<Rank> participants = {};  // the ranks that exchange, and therefore have states
};

// Whether both worlds have the same size and the same ranks that exchange: states can then be loaded as they are.
inline bool SameWorld(const CheckpointOwner& a, const CheckpointOwner& b) {
  return a.size == b.size && a.participants == b.participants;
}

// Whether losses may be multiplied by `scale`.
inline bool IsLossScale(double scale) { return scale > 0 && std::isfinite(scale); }

// Writes the states of `buckets`. The format is 64-bit numbers, little endian, and byte strings after their length:
// magic "TUTS", version, strategy, rank, size, step, loss scale (its bits); the number of participants, and each; the
// number of buckets; of each bucket its elements and number of states; of each state its name, kind, dtype, first
// element, divisor and bytes; last a hash of all these bytes (hash.h).
std::string WriteCheckpoint(const CheckpointOwner& owner, absl::Span<const ExchangeBucket> buckets);

// Fills the states of `buckets` from `checkpoints` and returns the saved owner with its step: where ranks step alone,
// the least step of those given. `checkpoints` holds this rank's own checkpoint of the same world (SameWorld), or those
// of all ranks of that world or another one, in rank order. InvalidArgument names what does not fit. `agree` is called
// with the owner or the error before anything is changed; when it returns an error, everything stays as it is. From
// another world only residuals are loaded: replicas must start anew.
absl::StatusOr<CheckpointOwner> ReadCheckpoint(
    absl::Span<const std::string> checkpoints, const CheckpointOwner& owner, absl::Span<ExchangeBucket> buckets,
    absl::FunctionRef<absl::Status(const absl::StatusOr<CheckpointOwner>& saved)> agree);

}  // namespace tutti

#endif  // TUTTI_SYNC_CHECKPOINT_H_
