// The state of a synchronizer as bytes, which a world of the same size or of another size can read.
#ifndef TUTTI_SYNC_CHECKPOINT_H_
#define TUTTI_SYNC_CHECKPOINT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/checkpoint_format.h"
#include "sync/exchange_bucket.h"

namespace tutti {

// Writes the states of `buckets`, in the format of checkpoint_format.h.
absl::StatusOr<std::string> WriteCheckpoint(const CheckpointOwner& owner, absl::Span<const ExchangeBucket> buckets);

// Fills the states of `buckets` from `checkpoints` and returns the saved owner with its step: where ranks step alone,
// the least step of those given. `checkpoints` holds those that CheckOwners asks for. InvalidArgument names what does
// not fit. `agree` is called with the owner or the error before anything is changed; when it returns an error,
// everything stays as it is. From another world only residuals are loaded: replicas must start anew.
absl::StatusOr<CheckpointOwner> ReadCheckpoint(
    absl::Span<const std::string> checkpoints, const CheckpointOwner& owner, absl::Span<ExchangeBucket> buckets,
    absl::FunctionRef<absl::Status(const absl::StatusOr<CheckpointOwner>& saved)> agree);

}  // namespace tutti

#endif  // TUTTI_SYNC_CHECKPOINT_H_
