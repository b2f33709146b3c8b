// Data-parallel training of any torch::nn::Module with any torch::optim::Optimizer:
//
//   auto world = tutti::nn::Connect();                                               // who am I?
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   tutti::nn::DataParallel replicas(*world, *net, {.strategy = "bytegrad"});        // equal replicas, in step
//   …
//   loss.backward();              // gradients are averaged over the ranks when it returns,
//   replicas.Step(optimizer);     // so every rank takes the same step; or weights are exchanged before or after it
#ifndef TUTTI_TORCH_DATA_PARALLEL_H_
#define TUTTI_TORCH_DATA_PARALLEL_H_

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tutti/agreement.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/tensors.h"

namespace tutti::nn {

// What becomes of buffers (running statistics of BatchNorm), which every rank computes from its own samples: in Flush,
// and in every step that all ranks make together. Those of `async` are in its warm-up; after it every rank has a pace
// of its own, and keeps its buffers until a Flush.
enum class Buffers : std::uint8_t {
  kBroadcast,  // those of rank 0 for all, as in torch's DistributedDataParallel
  kAverage,    // floating ones are averaged, others are those of rank 0
  kLeave,      // every rank keeps its own
};

inline std::string Name(Buffers buffers) {
  switch (buffers) {
    case Buffers::kBroadcast:
      return "kBroadcast";
    case Buffers::kAverage:
      return "kAverage";
    case Buffers::kLeave:
      return "kLeave";
  }
  return "unknown";
}

// Fields and defaults of SynchronizerOptions, and what only modules have.
struct DataParallelOptions {
  std::string strategy = SynchronizerOptions().strategy;
  std::int64_t bucket_bytes = SynchronizerOptions().bucket_bytes;
  std::int64_t first_bucket_bytes = SynchronizerOptions().first_bucket_bytes;
  bool allow_unused = SynchronizerOptions().allow_unused;
  // Equal on all ranks.
  Buffers buffers = Buffers::kBroadcast;
};

// Hooks into the gradients of one module for as long as it lives; the module itself is called as before. Gradients
// live in Tutti's buckets: after every backward(), whatever kind of zero_grad() came before it, p.grad() is a tensor
// there; buckets travel while backward still computes the others, and backward() returns when all have arrived.
//
// Create it when the module is complete (after to(), requires_grad_), on every rank at the same time: it overwrites
// parameters and buffers by those of rank 0. Parameters that do not require a gradient are left alone. After
// torch::load into the module call Broadcast(); strategies that exchange weights, which torch::load moves to other
// memory, want a new DataParallel then, and the next backward() says so.
//
// Errors are exceptions (errors.h), also out of backward(): a parameter without a gradient, a peer that died. After
// one, training can only go on with a new communicator. Not thread-safe; every backward() of the module runs on one
// thread.
class DataParallel {
 public:
  // Collective; a mistake of one rank is an error on all. `communicator` must outlive this. On all ranks it ends at the
  // same step (that of `async` at any after its warm-up), or after an error.
  DataParallel(Communicator& communicator, torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Overwrites parameters and buffers of the module by rank 0's, as the constructor does: after they were changed other
  // than by Step. Collective.
  void Broadcast();
  // Overwrites options and state of `optimizer` by rank 0's: for training that is resumed. Collective.
  void BroadcastOptimizer(torch::optim::Optimizer& optimizer);

  // optimizer.step(), with what the strategy does to the weights before and after it, and with the buffers. A strategy
  // that exchanges nothing but gradients (and a module without buffers) is served by optimizer.step() as well; with any
  // other, weights that change outside of Step are an error of the next backward(). Collective, but for `async` after
  // its warm-up: there it calls nothing that others must call too, and leaves the buffers alone.
  void Step(torch::optim::Optimizer& optimizer) {
    Step([&] { optimizer.step(); });
  }
  // The same for several optimizers, closures, scalers: `update` changes the weights.
  void Step(const std::function<void()>& update);

  // Gives all ranks the average of their weights, and the buffers that DataParallelOptions::buffers says: before an
  // evaluation or a checkpoint. Does nothing to weights that the strategy keeps equal anyway. Collective.
  void Flush();

  // Whether any rank says true, told to all: a scaler of the loss, which found an overflow in its gradients, must skip
  // the step on all ranks or on none, or scales and weights drift apart. Between backward() and Step, on all ranks and
  // in every step; `async` after its warm-up says only what this rank said.
  bool AgreeOnOverflow(bool mine) { return ValueOrThrow(synchronizer_->AgreeOnOverflow(mine)); }

  // See Synchronizer.
  void Pause() { synchronizer_->Pause(); }
  void Resume() { synchronizer_->Resume(); }
  void Stop() { synchronizer_->Stop(); }

  // See Synchronizer. A checkpoint is this state beside the module and its optimizer (docs/checkpoints.md). LoadState
  // is collective, and comes last, after the weights were restored.
  std::string SaveState() const { return synchronizer_->SaveState(); }
  void LoadState(const std::vector<std::string>& states);

  // While one lives, backward() accumulates gradients on this rank only; the first backward() after it synchronizes
  // their sum. One synchronization serves many small batches.
  class NoSync {
   public:
    explicit NoSync(DataParallel& replicas)
        : synchronizer_(*replicas.synchronizer_), before_(synchronizer_.synchronize()) {
      synchronizer_.set_synchronize(false);
    }
    ~NoSync() { synchronizer_.set_synchronize(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Synchronizer& synchronizer_;
    const bool before_;
  };

  // Throws, naming a rank, unless parameters and buffers are equal on all ranks to the last bit. Collective.
  void CheckReplicas();

  // The strategy in full, with every option.
  const std::string& strategy() const { return synchronizer_->strategy(); }
  // What was exchanged since the last call.
  SyncStatistics TakeStatistics() { return synchronizer_->TakeStatistics(); }

 private:
  friend class QAdam;

  // One parameter that is trained.
  struct Trained {
    torch::Tensor parameter;
    torch::Tensor weights;   // its memory when the synchronizer was told of it: torch::load gives it another
    torch::Tensor gradient;  // in its bucket
  };

  // Belongs to the parameter itself: a gradient accumulator goes when torch::load replaces the parameter's memory.
  struct GradientHook : torch::autograd::PostAccumulateGradHook {
    GradientHook(DataParallel& its_replicas, int its_index) : replicas(its_replicas), i(its_index) {}
    void operator()(const torch::Tensor& /*parameter*/) override { replicas.OnGradient(i); }

    DataParallel& replicas;
    const int i;
  };

  absl::StatusOr<std::vector<Parameter>> FindTensors(const torch::nn::Module& module);
  void Attach(int i);
  void OnGradient(int i);
  void BeginForward();
  void BeginBackward();
  void FinishBackward();
  void SynchronizeBuffers();
  std::int64_t Changes() const;
  void CheckPlaces() const;

  Communicator& communicator_;
  const Buffers buffer_mode_;
  std::unique_ptr<Synchronizer> synchronizer_;
  std::vector<torch::Tensor> replicated_;  // parameters and buffers
  std::vector<torch::Tensor> buffers_;
  std::vector<Trained> trained_;
  const int exceptions_ = std::uncaught_exceptions();
  int backward_ = -1;               // autograd's number of the backward that is under way
  std::int64_t known_changes_ = 0;  // of the weights, when the forward began
};

inline DataParallel::DataParallel(Communicator& communicator, torch::nn::Module& module,
                                  const DataParallelOptions& options)
    : communicator_(communicator), buffer_mode_(options.buffers) {
  absl::StatusOr<std::vector<Parameter>> found = FindTensors(module);
  ThrowIfError(Agree(communicator, "torch", {{"buffers", Name(buffer_mode_)}}, found.status()));
  synchronizer_ = ValueOrThrow(Synchronizer::Create(communicator, *std::move(found),
                                                    {.strategy = options.strategy,
                                                     .bucket_bytes = options.bucket_bytes,
                                                     .first_bucket_bytes = options.first_bucket_bytes,
                                                     .allow_unused = options.allow_unused}));
  Broadcast();
  // Last: hooks that outlived a failed constructor would lead nowhere.
  for (int i = 0; i < static_cast<int>(trained_.size()); ++i) Attach(i);
}

// Those that the ranks have in common; describes the ones that are trained.
inline absl::StatusOr<std::vector<Parameter>> DataParallel::FindTensors(const torch::nn::Module& module) {
  std::vector<Parameter> descriptions;
  std::unordered_set<torch::TensorImpl*> seen;  // modules may share parameters
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    replicated_.push_back(parameter);
    if (!parameter.requires_grad()) continue;
    absl::StatusOr<Parameter> description = DescribeParameter(item.key(), parameter);
    if (!description.ok()) return description.status();
    if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", item.key(), " already has a hook for its gradient: is the module wrapped twice?"));
    }
    descriptions.push_back(*std::move(description));
    trained_.push_back({.parameter = parameter, .weights = parameter.detach(), .gradient = {}});
  }
  for (const torch::Tensor& buffer : module.buffers()) {
    if (!buffer.defined()) continue;
    buffers_.push_back(buffer);
    replicated_.push_back(buffer);
  }
  return descriptions;
}

inline void DataParallel::Broadcast() {
  TensorMemory state(replicated_);
  ThrowIfError(synchronizer_->BroadcastState(state.memory()));
  state.WriteBack();
  ThrowIfError(synchronizer_->Restart());
  BeginForward();
}

inline DataParallel::~DataParallel() {
  for (Trained& trained : trained_) torch::autograd::impl::post_acc_grad_hooks(trained.parameter).reset();
  // Every rank has begun an exchange for the forward that does not come: it can end. An error gives it up.
  if (std::uncaught_exceptions() == exceptions_) (void)synchronizer_->Restart();
}

inline void DataParallel::Attach(int i) {
  Trained& trained = trained_[i];
  if (std::shared_ptr<void> view = synchronizer_->GradientView(i)) {
    trained.gradient = GradientAlias(std::move(view), trained.parameter);
  }
  torch::autograd::impl::set_post_acc_grad_hooks(trained.parameter, std::make_unique<GradientHook>(*this, i));
}

// Runs when the gradient of one parameter is complete: in its bucket, or, after zero_grad(), in a tensor of its own.
// One copy then costs less than to zero the bucket beforehand and to add to it.
inline void DataParallel::OnGradient(int i) {
  BeginBackward();
  Trained& trained = trained_[i];
  if (!trained.gradient.defined()) return;  // only weights are exchanged
  torch::Tensor& grad = trained.parameter.mutable_grad();
  if (!grad.is_same(trained.gradient)) {
    TORCH_CHECK_NOT_IMPLEMENTED(!grad.requires_grad() && grad.layout() == torch::kStrided,
                                "tutti: sparse gradients, and backward() with create_graph, are not supported");
    torch::NoGradGuard no_grad;
    trained.gradient.copy_(grad);
    grad = trained.gradient;
  }
  synchronizer_->MarkReady(i);
}

// How often weights were written, by anything that torch knows of: not by the synchronizer.
inline std::int64_t DataParallel::Changes() const {
  std::int64_t changes = 0;
  for (const Trained& trained : trained_) changes += trained.parameter._version();
  return changes;
}

// Weights that are exchanged must lie where the synchronizer was told.
inline void DataParallel::CheckPlaces() const {
  if (!synchronizer_->exchanges_weights()) return;
  for (const Trained& trained : trained_) {
    TORCH_CHECK_VALUE(trained.parameter.data_ptr() == trained.weights.data_ptr(),
                      "tutti: weights were moved to other memory (torch::load, set_data, to), where ",
                      synchronizer_->strategy(), " does not find them: create another DataParallel afterwards");
  }
}

inline void DataParallel::BeginForward() {
  ThrowIfError(synchronizer_->BeginForward());
  known_changes_ = Changes();
}

inline void DataParallel::BeginBackward() {
  const int current = torch::autograd::get_current_graph_task_id();
  if (backward_ == current) return;
  CheckPlaces();
  TORCH_CHECK_WITH(
      ValueError, !synchronizer_->exchanges_weights() || Changes() == known_changes_,
      "tutti: weights were changed outside of DataParallel::Step, which ", synchronizer_->strategy(),
      " must see: call replicas.Step(optimizer) in place of optimizer.step(), and after writing weights in place "
      "replicas.Broadcast(), or replicas.LoadState() where every rank has restored its own");
  ThrowIfError(synchronizer_->BeginBackward());
  backward_ = current;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { FinishBackward(); });
}

inline void DataParallel::Step(const std::function<void()>& update) {
  CheckPlaces();
  // Of this step, so asked before it is counted.
  const bool together = synchronizer_->steps_together();
  ThrowIfError(synchronizer_->BeforeStep());
  update();
  ThrowIfError(synchronizer_->AfterStep());
  if (together) SynchronizeBuffers();
  BeginForward();
}

inline void DataParallel::Flush() {
  CheckPlaces();
  ThrowIfError(synchronizer_->Flush());
  SynchronizeBuffers();
  BeginForward();
}

inline void DataParallel::LoadState(const std::vector<std::string>& states) {
  ThrowIfError(synchronizer_->LoadState(states));
  BeginForward();
}

inline void DataParallel::SynchronizeBuffers() {
  if (buffer_mode_ == Buffers::kLeave || communicator_.size() == 1) return;
  torch::NoGradGuard no_grad;
  for (const torch::Tensor& buffer : buffers_) {
    torch::Tensor flat = buffer.contiguous();
    const absl::StatusOr<DType> dtype = DTypeOf(buffer.scalar_type());
    Work work;
    if (buffer_mode_ == Buffers::kAverage && dtype.ok()) {
      work = communicator_.AllReduce(flat.data_ptr(), flat.data_ptr(), flat.numel(), *dtype, ReduceOp::kAvg,
                                     {.caller_drives = true});
    } else {
      work = communicator_.Broadcast(flat.data_ptr(), flat.data_ptr(), static_cast<std::int64_t>(flat.nbytes()),
                                     DType::kU8, /*root=*/0, {.caller_drives = true});
    }
    ThrowIfError(work.Wait());
    if (!flat.is_same(buffer)) buffer.copy_(flat);
  }
}

inline void DataParallel::FinishBackward() {
  backward_ = -1;
  for (int i : synchronizer_->MissingGradients()) {  // none when only weights are exchanged
    Trained& trained = trained_[i];
    torch::Tensor& grad = trained.parameter.mutable_grad();
    if (grad.is_same(trained.gradient)) continue;  // accumulated earlier
    torch::NoGradGuard no_grad;
    if (grad.defined()) {
      trained.gradient.copy_(grad);
    } else {
      trained.gradient.zero_();
    }
    grad = trained.gradient;
  }
  ThrowIfError(synchronizer_->FinishBackward());
}

inline void DataParallel::BroadcastOptimizer(torch::optim::Optimizer& optimizer) {
  std::ostringstream saved;
  torch::save(optimizer, saved);
  std::string bytes = saved.str();
  std::int64_t size = static_cast<std::int64_t>(bytes.size());
  ThrowIfError(synchronizer_->BroadcastState({{.data = &size, .bytes = sizeof(size)}}));
  bytes.resize(static_cast<std::size_t>(size));
  ThrowIfError(synchronizer_->BroadcastState({{.data = bytes.data(), .bytes = size}}));
  std::istringstream received(bytes);
  torch::load(optimizer, received);
}

inline void DataParallel::CheckReplicas() {
  ThrowIfError(synchronizer_->CheckState(TensorMemory(replicated_).memory()));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_DATA_PARALLEL_H_
