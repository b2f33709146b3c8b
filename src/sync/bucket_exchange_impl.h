// The buckets of a framework, and the residuals of parameters that are in no bucket.
#ifndef TUTTI_SYNC_BUCKET_EXCHANGE_IMPL_H_
#define TUTTI_SYNC_BUCKET_EXCHANGE_IMPL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "sync/bucket_memory.h"
#include "sync/caller.h"
#include "sync/checkpoint_format.h"
#include "sync/exchange_bucket.h"
#include "sync/residuals.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_exchange.h"
#include "tutti/communicator.h"

namespace tutti {

// The functions have the names and the contracts of BucketExchange's functions.
class BucketExchange::Impl {
 public:
  Impl(Communicator& communicator, std::unique_ptr<BucketMemory> memory, const Caller& caller, Strategy strategy)
      : communicator_(communicator),
        memory_(std::move(memory)),
        caller_(caller),
        strategy_(std::move(strategy)),
        name_(strategy_.ToString()) {}
  ~Impl();

  const std::string& name() const { return name_; }
  int bucket_count() const { return static_cast<int>(buckets_.size()); }
  std::int64_t step() const { return step_; }
  double loss_scale() const { return loss_scale_; }
  std::uint32_t number(int bucket) const;

  absl::Status SetBucket(int bucket, BucketContents contents, void* data);
  Work Exchange(int bucket, void* data, absl::Duration timeout, void* stream);
  absl::Status SetLossScale(double scale);
  absl::StatusOr<std::string> SaveState();
  absl::Status LoadState(absl::Span<const std::string> states);

 private:
  struct Bucket {
    Caller caller;
    std::int64_t step = 0;  // the step of the bucket's next exchange
    BucketContents contents = {};
    std::optional<ExchangeBucket> exchange = std::nullopt;  // none until the bucket is set, and after it was emptied
  };

  // The first mistake in the arguments of SetBucket; OK when there is none.
  absl::Status Check(int bucket, const BucketContents& contents, const void* data);
  // FailedPrecondition when an exchange is under way: of any bucket, or of `bucket`. The text does not name the rank,
  // so that ranks which all make this mistake agree on it. In memory of a GPU, where the user does not wait for an
  // exchange, these functions wait for its end; an exchange that has failed is none under way.
  absl::Status CheckIdle();
  absl::Status CheckIdle(int bucket);
  // The buckets from which `contents` of `bucket` take parameters, and `bucket` itself.
  std::vector<int> Emptied(int bucket, const BucketContents& contents) const;
  // The step of the next exchange of a bucket that gets `contents`: it follows the last exchange of these parameters,
  // wherever they were, and is `first_step_` for parameters that were never exchanged. It does not follow from `step_`,
  // since a framework may set a bucket in the middle of a step in which others have left, the first step included.
  std::int64_t NextStepOf(const BucketContents& contents) const;
  // `error`, of an argument or call of this rank alone, with the rank in front.
  absl::Status OfThisRank(const absl::Status& error) const;
  CallOptions OwnCall() const { return caller_.Sign(Purpose::kState, 0, {}); }
  CheckpointOwner Owner() const;

  Communicator& communicator_;
  const std::unique_ptr<BucketMemory> memory_;
  const Caller caller_;
  const Strategy strategy_;
  const std::string name_;
  std::vector<Bucket> buckets_;
  std::map<std::string, std::int64_t> counts_;  // elements of every parameter that was ever in a bucket, by key
  std::map<std::string, int> bucket_of_;        // the bucket of every parameter that is in one, by key
  // The step of the next exchange of every parameter that has left a bucket, by key.
  std::map<std::string, std::int64_t> steps_;
  Residuals kept_;  // of parameters in no bucket, or whose bucket has no state for them
  double loss_scale_ = 1;
  std::int64_t step_ = 0;
  std::int64_t first_step_ = 0;  // the step of a parameter's first exchange: that of the loaded state, if any
};

}  // namespace tutti

#endif  // TUTTI_SYNC_BUCKET_EXCHANGE_IMPL_H_
