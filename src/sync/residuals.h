// What codecs hold back of gradients, by parameter: residuals between two buckets, and in a checkpoint.
#ifndef TUTTI_SYNC_RESIDUALS_H_
#define TUTTI_SYNC_RESIDUALS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sync/checkpoint_format.h"
#include "sync/exchange_bucket.h"
#include "tutti/bucket_exchange.h"
#include "tutti/communicator.h"

namespace tutti {

// A part of what one rank holds back of one parameter.
struct Residual {
  std::string name;                // the name of the state
  std::int64_t first_element = 0;  // the residual's first element in the parameter
  std::int64_t divisor = 1;        // see StateRange
  std::vector<float> values;
};

struct ParameterResiduals {
  std::int64_t count = 0;  // elements of the parameter
  std::vector<Residual> residuals;
};

// By key; in order, so that equal residuals are saved as equal bytes.
using Residuals = std::map<std::string, ParameterResiduals>;

// The largest number of states that a bucket of a BucketExchange may have.
inline constexpr int kMaxStates = 62;

// Copies the residuals of `bucket`, which holds the parameters of `contents`, to `residuals`. No run may be under way.
// An error is one of the memory of a GPU.
absl::Status CopyOut(const ExchangeBucket& bucket, const BucketContents& contents, Residuals& residuals);

// Moves residuals of the parameters of `contents` into `bucket`, in place of the bucket's own. A state that covers the
// bucket on every rank gets the residuals of this rank; a state of which each rank has a part gets the residuals that
// any rank has of that part. Residuals for which the bucket has no state stay in `residuals`. `call` holds the options
// of the calls that are made here. Collective; errors are those of the communicator.
absl::Status MoveIn(Residuals& residuals, const BucketContents& contents, Communicator& communicator,
                    const CallOptions& call, ExchangeBucket& bucket);

void Multiply(Residuals& residuals, double factor);

// `residuals` in the form in which a checkpoint is written, which shares their memory.
std::vector<CheckpointBucket> ToSave(const Residuals& residuals);

// What this rank, `owner`, takes over of `checkpoints`: its own, or those of the ranks whose heir it is. `known` has
// the number of elements of parameters; InvalidArgument names a parameter that was saved with another number, or a
// state that is no residual.
absl::StatusOr<Residuals> TakeOver(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner,
                                   const std::map<std::string, std::int64_t>& known);

}  // namespace tutti

#endif  // TUTTI_SYNC_RESIDUALS_H_
