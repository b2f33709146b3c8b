// The state of a synchronizer as bytes, to be read by the world that wrote it or by one of another size.
#ifndef TUTTI_SYNC_CHECKPOINT_H_
#define TUTTI_SYNC_CHECKPOINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/exchange_bucket.h"

namespace tutti {

// Whose state it is.
struct CheckpointOwner {
  std::string strategy;  // full form
  Rank rank = 0;
  int size = 1;
  std::int64_t step = 0;
  bool steps_alone = false;             // every rank counts its own; not saved, for the strategy says it
  std::vector<Rank> participants = {};  // those that exchange, and have states
};

// Of as many ranks, of which the same exchange: its states can go on as they are.
inline bool SameWorld(const CheckpointOwner& a, const CheckpointOwner& b) {
  return a.size == b.size && a.participants == b.participants;
}

// Numbers of 64 bits, little endian, and strings of bytes after their length: magic "TUTS", version, strategy, rank,
// size, step; number of participants, these; number of buckets; of each, elements and number of states; of each, name,
// kind, dtype, first element, bytes; a hash of all that (hash.h).
std::string WriteCheckpoint(const CheckpointOwner& owner, absl::Span<const ExchangeBucket> buckets);

// Fills the states of `buckets` and returns whose they were, and after how many steps: where ranks step alone, the
// least of those given. `checkpoints`: this rank's of the same world (SameWorld), or those of all ranks of that world
// or another, in rank order. InvalidArgument names what does not fit. `agree` is told either before anything is
// changed; an error of its own keeps everything as it is. In another world replicas are left alone, for they must begin
// anew.
absl::StatusOr<CheckpointOwner> ReadCheckpoint(
    absl::Span<const std::string> checkpoints, const CheckpointOwner& owner, absl::Span<ExchangeBucket> buckets,
    absl::FunctionRef<absl::Status(const absl::StatusOr<CheckpointOwner>& saved)> agree);

}  // namespace tutti

#endif  // TUTTI_SYNC_CHECKPOINT_H_
