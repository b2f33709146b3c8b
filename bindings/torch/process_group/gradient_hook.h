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
  // never meet other calls of the group. Throws as ThrowIfError does: ValueError names a strategy or option that is
  // wrong.
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
  // Makes `contents` known as those of bucket `index`, whose elements are in `buffer`.
  void SetBucket(int index, BucketContents contents, const at::Tensor& buffer);
  BucketContents ContentsOf(const ::c10d::GradBucket& bucket) const;

  std::shared_ptr<Live> live() const { return live_->Get(); }

  const std::shared_ptr<EndsWithInterpreter<Live>> live_;
  const std::optional<c10::Stream> results_;
  std::unordered_map<const at::TensorImpl*, std::string> names_;
  std::vector<at::Tensor> parameters_;   // kept, so that no other tensor takes the address of one of them
  std::vector<BucketContents> buckets_;  // as they were set last
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_GRADIENT_HOOK_H_
