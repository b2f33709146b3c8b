// Gradients in buckets that a framework owns, such as those that torch's DDP hands to its communication hook.
#ifndef TUTTI_BUCKET_EXCHANGE_H_
#define TUTTI_BUCKET_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/dtype.h"
#include "tutti/work.h"

namespace tutti {

struct BucketParameter {
  std::string key;         // the parameter's name, unique in the model
  std::int64_t count = 0;  // elements
};

// The parameters whose gradients travel together, in the order in which these lie in the bucket, without gaps.
struct BucketContents {
  DType dtype = DType::kF32;
  std::vector<BucketParameter> parameters;
};

// The exchange of the gradients of one model. The framework decides which gradients share a bucket, where the bucket
// lies and when it leaves, and may decide anew between two steps:
//
//   exchange = BucketExchange::Create(world, "bytegrad:error_feedback=true");      // once
//   … where the framework has a new bucket, or other parameters in an old one …
//   status = exchange->SetBucket(index, {DType::kF32, {{"fc.bias", 10}, {"fc.weight", 640}}}, data);
//   … in every step, once the bucket is full …
//   Work work = exchange->Exchange(index, data);    // when it has ended, `data` holds the average of all ranks
//
// All ranks make the same calls in the same order. What an algorithm keeps from step to step, such as the residuals of
// error feedback, belongs to the parameter and not to the bucket: the residual follows its parameter into another
// bucket, where the order of the parameters may be another one. The part of a residual that another rank owns after
// SetBucket travels to that rank within SetBucket. A bucket that is too small to be encoded uses no residual; the
// residuals of its parameters are kept until a bucket that is encoded takes the parameters. State of a kind other than
// a residual in f32 begins anew, at zero, on all ranks; no algorithm of this build that exchanges gradients has any.
//
// Used by one thread at a time. Works may be waited for by any thread.
class BucketExchange {
 public:
  // `strategy` selects an algorithm that exchanges gradients. Collective; `communicator` must outlive the result.
  // InvalidArgument, on every rank, names the rank and field that differ, or says what to use in place of a
  // BucketExchange for an algorithm that exchanges weights or momentum.
  //
  // `memory`: where the buckets lie. On a GPU an exchange is enqueued and not waited for (Work::WaitOnStream), and
  // every function that would refuse a bucket that is still under way waits for that bucket instead.
  static absl::StatusOr<std::unique_ptr<BucketExchange>> Create(Communicator& communicator, const std::string& strategy,
                                                                MemoryKind memory = MemoryKind::kHost);
  // Aborts an exchange that is under way, on all ranks: the communicator then fails. On a GPU, whose exchanges nobody
  // need wait for, an exchange has two seconds to end before.
  ~BucketExchange();
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  const std::string& strategy() const;  // the strategy name with all options
  int bucket_count() const;             // buckets that were ever set
  // The number of exchanges of the bucket that was exchanged most often; exchanges before the state was saved count
  // too.
  std::int64_t step() const;
  // The number of the bucket: equal on all ranks, and above the numbers of all synchronizers and buckets that any of
  // these ranks made before. Errors about calls that do not match name the bucket by this number. 0 for a bucket that
  // was never set.
  std::uint32_t number(int bucket) const;

  // Says what bucket `bucket` holds from here on, and where the bucket lies: at `data`, which may be null when there
  // are no elements. `bucket` is one that was set before, or the next one, bucket_count(). Parameters that were in
  // other buckets leave them, and those buckets must be set before they are exchanged again. Collective; takes the
  // memory and makes the plans that exchanges then use, and is for set-up only. InvalidArgument, on every rank, names
  // what is wrong, or the rank and field that differ (a key that comes twice, a parameter with another count than
  // before); FailedPrecondition names a bucket that is still under way on all ranks (InvalidArgument the rank, where it
  // is on some); Unimplemented says what the strategy cannot do: nothing is changed then. ResourceExhausted, on every
  // rank, when one rank has no memory: the bucket must then be set again, as must those whose parameters it was to
  // take, and no residual is lost.
  absl::Status SetBucket(int bucket, BucketContents contents, void* data);

  // Starts the exchange of bucket `bucket`, which lies at `data` now: the average over all ranks replaces the gradients
  // (the sum with average=false). `data` must stay valid and untouched until the work has ended. Memory from
  // Communicator::Allocate is used where it is; other memory works through staging. `data` may be another address than
  // the last time, which costs a little time but needs no new plan. Allocates nothing as long as `data` stays in memory
  // from Allocate, or stays outside it.
  // `timeout`: how long the exchange may wait for peers; zero: as long as the communicator's timeout. `stream`: where
  // the gradients of a GPU are computed (CallOptions::stream).
  //
  // A refused exchange is a Work that has ended at once, while peers that make the call wait for this rank until their
  // timeout: InvalidArgument for a bucket that is not set, null data, data in memory of another kind than that of
  // Create, a stream of another GPU, or a negative timeout; FailedPrecondition for a bucket that is still under way.
  // Other errors are those of the communicator.
  Work Exchange(int bucket, void* data, absl::Duration timeout = absl::ZeroDuration(), void* stream = nullptr);

  // Declares that gradients are multiplied by `scale` from here on, as Synchronizer::SetLossScale does: residuals are
  // multiplied by the new scale over the last one, which is 1 at first. Collective when `scale` differs from the last
  // one, which all ranks must change together. InvalidArgument, on every rank, names the rank whose scale differs or is
  // no finite number above 0, or on which a bucket is under way; FailedPrecondition names a bucket that is under way on
  // all ranks. Nothing is changed then.
  absl::Status SetLossScale(double scale);
  double loss_scale() const;

  // The step, the loss scale and the residuals of all parameters. FailedPrecondition names a bucket that is under way;
  // where the last exchange of a bucket with residuals failed, its error is returned, because they are lost.
  absl::StatusOr<std::string> SaveState() const;
  // Loads what SaveState of the same strategy returned; parameters may be in other buckets than when the state was
  // saved, or in none yet. `states` are those of all ranks of the old world, in rank order, of which each rank takes
  // its own or its share; in a world of the same size and nodes, also a rank's own alone, and without residuals that of
  // any one rank (see Synchronizer::LoadState). Collective: InvalidArgument, on every rank, names what does not fit, or
  // a rank on which a bucket is under way, and FailedPrecondition a bucket that is under way on all ranks; nothing is
  // changed then.
  absl::Status LoadState(absl::Span<const std::string> states);

 private:
  class Impl;
  explicit BucketExchange(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

#endif  // TUTTI_BUCKET_EXCHANGE_H_
