// What SaveState writes, as bytes and as values.
#ifndef TUTTI_SYNC_CHECKPOINT_FORMAT_H_
#define TUTTI_SYNC_CHECKPOINT_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/dtype.h"
#include "tutti/plan.h"

namespace tutti {

// The synchronizer, or bucket exchange, that a state belongs to.
struct CheckpointOwner {
  std::string strategy;  // the strategy name with all options
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

// A range of state (StateRange). The bytes belong to the bucket, or to the text that was parsed.
struct CheckpointState {
  std::string name;
  StateKind kind;
  DType dtype;
  std::int64_t first_element;
  std::int64_t divisor;
  absl::string_view bytes;
};

// The states of a bucket of a synchronizer, or of one parameter of a BucketExchange.
struct CheckpointBucket {
  std::int64_t count = 0;  // elements
  std::vector<CheckpointState> states;
};

struct Checkpoint {
  CheckpointOwner owner;
  std::vector<CheckpointBucket> buckets;
};

// The format is 64-bit numbers, little endian, and byte strings after their length: magic "TUTS", version, strategy,
// rank, size, step, loss scale (its bits); the number of participants, and each; the number of buckets; of each bucket
// its elements and number of states; of each state its name, kind, dtype, first element, divisor and bytes; last a hash
// of all these bytes (hash.h).
std::string Write(const Checkpoint& checkpoint);

// The checkpoints that `states` hold, whose bytes the results share. InvalidArgument names a state that is damaged.
absl::StatusOr<std::vector<Checkpoint>> Parse(absl::Span<const std::string> states);

// Whether no bucket has a state, so that nothing depends on which parameters buckets hold.
bool IsStateless(const Checkpoint& checkpoint);

// OK when `checkpoints` are those of one moment of one training with the strategy of `owner`, and the ones that `owner`
// needs: its own of the same world (SameWorld), or those of all ranks of that world or another one, in rank order.
// Where `owner` is `stateless`, a stateless checkpoint of any rank that exchanged will do: no other rank had more to
// save. InvalidArgument names what does not fit.
absl::Status CheckOwners(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner, bool stateless);

// The owner of all `checkpoints`, at least one; its step is the least of theirs.
CheckpointOwner OwnerOf(const std::vector<Checkpoint>& checkpoints);

// The rank of `owner`'s world that takes over the residuals of rank `rank` of the `former` world.
Rank HeirOf(Rank rank, const CheckpointOwner& former, const CheckpointOwner& owner);

}  // namespace tutti

#endif  // TUTTI_SYNC_CHECKPOINT_FORMAT_H_
