// A communication hook for torch's DistributedDataParallel that exchanges gradients by an algorithm of Tutti.
#ifndef TUTTI_TORCH_PROCESS_GROUP_GRADIENT_HOOK_H_
#define TUTTI_TORCH_PROCESS_GROUP_GRADIENT_HOOK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "tutti/bucket_exchange.h"

namespace tutti::dist {

// The exchange behind a hook: what Python holds. The hook itself belongs to DDP's reducer. Used by one thread at a
// time.
class GradientExchange {
 public:
  using NamedParameters = std::vector<std::pair<std::string, at::Tensor>>;

  // Collective over the ranks of `group`, which gives the exchange a communicator of its own: the exchange's calls
  // never meet other calls of the group. `parameters` are those that DDP does not ignore; of a parameter with several
  // names the first one counts. Throws as ThrowIfError does: ValueError names a strategy or option that is wrong.
  static std::shared_ptr<GradientExchange> Create(ProcessGroupTutti& group, const NamedParameters& parameters,
                                                  const std::string& strategy);
  // `results` is a stream of the GPU on which the parameters are, if any: see ProcessGroupWork.
  GradientExchange(std::unique_ptr<Communicator> communicator, std::unique_ptr<BucketExchange> exchange,
                   const NamedParameters& parameters, std::optional<c10::Stream> results);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // From now on `reducer` gives its buckets to this exchange. Throws when the reducer has a hook already.
  static void Register(const std::shared_ptr<GradientExchange>& exchange, ::c10d::Reducer& reducer);

  // Starts the exchange of a bucket, whose parameters may have changed: DDP cuts its buckets anew after the first step.
  c10::intrusive_ptr<c10::ivalue::Future> Exchange(::c10d::GradBucket& bucket);

  // These functions do what the functions of the same names in BucketExchange do.
  std::string strategy() const;
  std::int64_t step() const;
  std::string SaveState() const;
  void LoadState(const std::vector<std::string>& states);
  void SetLossScale(double scale);

 private:
  // The exchange with its communicator, which outlives it.
  struct Live {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<BucketExchange> exchange;
  };
  // The contents that a bucket was given last. An error names the bucket by `names`, the first and the last of its
  // parameters in the order of the module: "conv1.weight … conv2.bias".
  struct Bucket {
    BucketContents contents;
    std::string names;
  };
  // Makes what `bucket` holds known, which is `contents`.
  void SetBucket(::c10d::GradBucket& bucket, BucketContents contents);
  BucketContents ContentsOf(const ::c10d::GradBucket& bucket) const;
  // Throws ValueError where a parameter is trained that was frozen at first: DDP does not exchange its gradient.
  void CheckFrozen() const;
  std::string NamesOf(const ::c10d::GradBucket& bucket) const;
  // The end of an error of bucket `index`, which holds the parameters `names`.
  std::string WaitedFor(int index, const std::string& names) const;

  std::shared_ptr<Live> live() const { return live_->Get(); }

  const std::shared_ptr<EndsWithInterpreter<Live>> live_;
  const std::optional<c10::Stream> results_;
  const NamedParameters parameters_;  // in the module's order; kept, so that no other tensor takes the address of one
  std::unordered_map<const at::TensorImpl*, std::size_t> places_;  // of the parameters in `parameters_`
  std::vector<std::size_t> frozen_;                                // the places of those that are not trained
  std::vector<Bucket> buckets_;
  std::int64_t training_step_ = 0;  // that of the buckets which are exchanged now
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_GRADIENT_HOOK_H_
