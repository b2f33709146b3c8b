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

#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
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
#include "tutti/torch/buffers.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/gradient_hooks.h"
#include "tutti/torch/module_watch.h"
#include "tutti/torch/tensors.h"
#include "tutti/torch/weights_watch.h"

namespace tutti::nn {

// Options with the fields and defaults of SynchronizerOptions, and those that only modules have.
struct DataParallelOptions {
  std::string strategy = SynchronizerOptions().strategy;
  std::int64_t bucket_bytes = SynchronizerOptions().bucket_bytes;
  std::int64_t first_bucket_bytes = SynchronizerOptions().first_bucket_bytes;
  bool allow_unused = SynchronizerOptions().allow_unused;
  // How ranks keep the module's buffers equal; the same on all ranks.
  Buffers buffers = Buffers::kBroadcast;
};

// DataParallel hooks into the gradients of one module for as long as it lives; the module itself is called as before.
// Gradients live in Tutti's buckets: after every backward(), whatever kind of zero_grad() came before it, p.grad() is a
// tensor in a bucket. A bucket travels while backward still computes the gradients of others, and backward() returns
// when all buckets have arrived.
//
// Create it when the module is complete (after to(), requires_grad_), on every rank at the same time: it overwrites
// parameters and buffers by those of rank 0. Parameters that do not require a gradient are left alone. A parameter that
// is registered, replaced, unfrozen or converted later is an error of the next backward(), Step or CheckReplicas. After
// torch::load into the module call Broadcast(). With a strategy that exchanges weights, create a new DataParallel
// instead, because torch::load moves weights to other memory; the next backward() says so. A module that no shared_ptr
// owns must outlive the DataParallel.
//
// Gradients that are there before backward() count, as in torch: after several backward() p.grad() is the sum of all,
// on all ranks. With allow_unused, a parameter that no rank has used keeps an undefined gradient, so that optimizers
// leave it alone. A node of the graph may run a backward() of its own, as a checkpointed segment does; a parameter must
// then get its gradient from only one of the two.
//
// Errors are exceptions (errors.h), also out of backward(): a parameter without a gradient, a peer that died. They name
// the parameter, the rank and the step. After an error of a peer, training can only go on with a new communicator. A
// backward() that an exception of the module itself ended, on all ranks at the same place, can be repeated after
// zero_grad(). Not thread-safe; every backward() of the module runs on one thread.
class DataParallel {
 public:
  // Collective; a mistake of one rank is an error on all. `communicator` must outlive the DataParallel. All ranks must
  // destroy it at the same step (`async`: at any step after its warm-up), or after an error.
  DataParallel(Communicator& communicator, torch::nn::Module& module, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Overwrites parameters and buffers of the module by rank 0's, as the constructor does. Call it after changing them
  // other than by Step. Collective.
  void Broadcast();
  // Overwrites options and state of `optimizer` by rank 0's, for a training that is resumed. Collective.
  void BroadcastOptimizer(torch::optim::Optimizer& optimizer);

  // Calls optimizer.step(), does before and after it what the strategy does to the weights, and makes the buffers
  // equal. For a strategy that exchanges only gradients (and a module without buffers) a plain optimizer.step() is
  // enough. With any other, weights that change outside of Step are an error of the next backward() or Step, unless
  // they are put back before, as after an evaluation with other weights. Collective, except for `async` after its
  // warm-up: there Step makes no collective call and leaves the buffers alone.
  // Throws, before anything has changed, when the gradients are this rank's alone: accumulated under NoSync, or not
  // made by backward().
  void Step(torch::optim::Optimizer& optimizer) {
    EndBackward();
    place_->ThrowIfError(gradients_->CheckExchanged());
    Update([&] { optimizer.step(); });
  }
  // Step(optimizer) for several optimizers, closures or scalers: `update` changes the weights, and may call backward().
  // Gradients that are this rank's alone are only found after `update` has used them: after that error replicas differ
  // until Broadcast() (and BroadcastOptimizer).
  void Step(const std::function<void()>& update) {
    EndBackward();
    Update(update);
  }

  // Gives all ranks the average of their weights, and makes buffers equal as DataParallelOptions::buffers says, before
  // an evaluation or a checkpoint. Leaves weights alone that the strategy keeps equal anyway. Collective.
  void Flush();

  // Whether `mine` is true on any rank: a loss scaler that found an overflow in its gradients must skip the step on all
  // ranks or on none, or scales and weights drift apart. Call it between backward() and Step, on all ranks and in every
  // step; for `async` after its warm-up it returns `mine`.
  bool AgreeOnOverflow(bool mine) { return ValueOrThrow(synchronizer_->AgreeOnOverflow(mine)); }

  // Declares that the losses of all backward() from here on are multiplied by `scale`: before each backward(), on all
  // ranks. What a codec with error_feedback=true holds back follows the scale. See Synchronizer::SetLossScale.
  void SetLossScale(double scale) { place_->ThrowIfError(synchronizer_->SetLossScale(scale)); }

  // The rounds of `async`: see Synchronizer.
  void Pause() { synchronizer_->Pause(); }
  void Resume() { synchronizer_->Resume(); }
  void Stop() { synchronizer_->Stop(); }

  // The state of the Synchronizer. A checkpoint is this state together with the module and its optimizer
  // (docs/checkpoints.md). LoadState is collective, and comes last, after the weights were restored.
  std::string SaveState() const { return synchronizer_->SaveState(); }
  void LoadState(const std::vector<std::string>& states);

  // A guard: while any NoSync lives, backward() accumulates gradients on this rank only; the first backward() after the
  // last guard has gone synchronizes their sum. One synchronization then serves many small batches.
  class NoSync {
   public:
    explicit NoSync(DataParallel& replicas) : replicas_(replicas) { replicas_.CountNoSync(1); }
    ~NoSync() { replicas_.CountNoSync(-1); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallel& replicas_;
  };

  // Throws, naming a rank and a parameter, unless parameters and buffers are equal on all ranks to the last bit.
  // Collective.
  void CheckReplicas();

  // The full form of the strategy, with every option.
  const std::string& strategy() const { return synchronizer_->strategy(); }
  // The traffic since the last call.
  SyncStatistics TakeStatistics() { return synchronizer_->TakeStatistics(); }

 private:
  friend class QAdam;

  absl::StatusOr<std::vector<Parameter>> FindTensors(const torch::nn::Module& module);
  void CountNoSync(int change);
  void BeginForward();
  // Ends the last backward() before the weights are updated, unless an exception has ended that update once before.
  void EndBackward();
  void Update(const std::function<void()>& update);
  absl::Status MayBeginBackward() const;
  absl::Status CheckPlaces() const;
  void SynchronizeBuffers();

  Communicator& communicator_;
  const Buffers buffer_mode_;
  const ModuleWatch module_;
  std::unique_ptr<Synchronizer> synchronizer_;
  std::vector<NamedTensor> replicated_;  // parameters and buffers
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> trained_;
  std::optional<ErrorPlace> place_;
  std::optional<WeightsWatch> weights_;  // exists for strategies that exchange weights
  std::optional<GradientHooks> gradients_;
  const int exceptions_ = std::uncaught_exceptions();
  int no_syncs_ = 0;
  bool updating_ = false;  // the weights change inside Step now
  bool update_failed_ =
      false;  // an exception has ended the last update; it may be that of a backward() to be repeated there
};

inline DataParallel::DataParallel(Communicator& communicator, torch::nn::Module& module,
                                  const DataParallelOptions& options)
    : communicator_(communicator), buffer_mode_(options.buffers), module_(module) {
  absl::StatusOr<std::vector<Parameter>> found = FindTensors(module);
  ThrowIfError(Agree(communicator, "torch", {{"buffers", Name(buffer_mode_)}}, found.status()));
  synchronizer_ = ValueOrThrow(Synchronizer::Create(communicator, *std::move(found),
                                                    {.strategy = options.strategy,
                                                     .bucket_bytes = options.bucket_bytes,
                                                     .first_bucket_bytes = options.first_bucket_bytes,
                                                     .allow_unused = options.allow_unused}));
  place_.emplace(communicator, *synchronizer_);
  if (synchronizer_->exchanges_weights()) weights_.emplace(trained_);
  Broadcast();
  // The hooks come last: hooks that outlived a failed constructor would call an object that does not exist.
  gradients_.emplace(*synchronizer_, *place_, trained_, options.allow_unused, [this] { return MayBeginBackward(); });
}

// Collects the tensors that ranks have in common; returns descriptions of the trained parameters.
inline absl::StatusOr<std::vector<Parameter>> DataParallel::FindTensors(const torch::nn::Module& module) {
  std::vector<Parameter> descriptions;
  std::unordered_set<torch::TensorImpl*> seen;  // modules may share parameters
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& parameter = item.value();
    if (!parameter.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    replicated_.push_back({item.key(), parameter});
    if (!parameter.requires_grad()) continue;
    absl::StatusOr<Parameter> description = DescribeParameter(item.key(), parameter);
    if (!description.ok()) return description.status();
    if (torch::autograd::impl::post_acc_grad_hooks(parameter) != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", item.key(), " already has a hook for its gradient: is the module wrapped twice?"));
    }
    descriptions.push_back(*std::move(description));
    trained_.push_back(parameter);
  }
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined()) continue;
    buffers_.push_back(item.value());
    replicated_.push_back({item.key(), item.value()});
  }
  return descriptions;
}

inline void DataParallel::Broadcast() {
  TensorMemory state(replicated_);
  place_->ThrowIfError(synchronizer_->BroadcastState(state.memory()));
  state.WriteBack();
  place_->ThrowIfError(synchronizer_->Restart());
  BeginForward();
}

inline DataParallel::~DataParallel() {
  gradients_.reset();
  // Every rank has begun an exchange for a forward that does not come: Restart ends it. After an error it is given up.
  if (std::uncaught_exceptions() == exceptions_) (void)synchronizer_->Restart();
}

inline void DataParallel::CountNoSync(int change) {
  no_syncs_ += change;
  synchronizer_->set_synchronize(no_syncs_ == 0);
}

inline void DataParallel::BeginForward() {
  place_->ThrowIfError(synchronizer_->BeginForward());
  if (weights_.has_value()) weights_->Remember();
}

// Checks that weights which are exchanged still lie where the synchronizer was told.
inline absl::Status DataParallel::CheckPlaces() const {
  if (absl::Status module = module_.Check(); !module.ok() || !weights_.has_value()) return module;
  const int moved = weights_->FindMoved();
  if (moved == WeightsWatch::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("parameter ", synchronizer_->parameters()[moved].name,
                                                 " was moved to other memory (torch::load, set_data, to), where ",
                                                 synchronizer_->strategy(),
                                                 " does not find it: create another DataParallel afterwards"));
}

inline absl::Status DataParallel::MayBeginBackward() const {
  if (absl::Status places = CheckPlaces(); !places.ok()) return places;
  if (!weights_.has_value() || updating_) return absl::OkStatus();
  const int written = weights_->FindWritten();
  if (written == WeightsWatch::kNone) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", synchronizer_->parameters()[written].name,
      ": weights were changed outside of DataParallel::Step, which ", synchronizer_->strategy(),
      " must see: call replicas.Step(optimizer) in place of optimizer.step(), and after writing weights in place "
      "replicas.Broadcast(), or replicas.LoadState() where every rank has restored its own"));
}

inline void DataParallel::EndBackward() {
  if (!update_failed_) place_->ThrowIfError(gradients_->EndBackward());
}

inline void DataParallel::Update(const std::function<void()>& update) {
  place_->ThrowIfError(MayBeginBackward());
  // The answer concerns this step, so it is asked before the step is counted.
  const bool together = synchronizer_->steps_together();
  place_->ThrowIfError(synchronizer_->BeforeStep());
  {
    updating_ = update_failed_ = true;
    const auto end = c10::make_scope_exit([this] {
      updating_ = false;
      if (weights_.has_value())
        weights_->Remember();  // an update may be repeated from the weights that an exception has left
    });
    update();
    update_failed_ = false;
  }
  place_->ThrowIfError(gradients_->CheckExchanged());
  gradients_->BeginStep();
  place_->ThrowIfError(synchronizer_->AfterStep());
  if (together) SynchronizeBuffers();
  BeginForward();
}

inline void DataParallel::Flush() {
  place_->ThrowIfError(CheckPlaces());
  place_->ThrowIfError(synchronizer_->Flush());
  SynchronizeBuffers();
  BeginForward();
}

inline void DataParallel::LoadState(const std::vector<std::string>& states) {
  ThrowIfError(synchronizer_->LoadState(states));
  BeginForward();
}

inline void DataParallel::SynchronizeBuffers() {
  const CallOptions call = synchronizer_->OwnCall({.caller_drives = true});
  place_->ThrowIfError(nn::SynchronizeBuffers(communicator_, call, buffer_mode_, buffers_));
}

inline void DataParallel::BroadcastOptimizer(torch::optim::Optimizer& optimizer) {
  std::ostringstream saved;
  torch::save(optimizer, saved);
  std::string bytes = saved.str();
  std::int64_t size = static_cast<std::int64_t>(bytes.size());
  place_->ThrowIfError(synchronizer_->BroadcastState({{.data = &size, .bytes = sizeof(size), .name = "size"}}));
  bytes.resize(static_cast<std::size_t>(size));
  place_->ThrowIfError(synchronizer_->BroadcastState({{.data = bytes.data(), .bytes = size, .name = "optimizer"}}));
  // torch::load would keep the state of a parameter for which it finds none.
  optimizer.state().clear();
  std::istringstream received(bytes);
  torch::load(optimizer, received);
}

inline void DataParallel::CheckReplicas() {
  place_->ThrowIfError(synchronizer_->Agree({}, module_.Check()));
  place_->ThrowIfError(synchronizer_->CheckState(TensorMemory(replicated_).memory()));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_DATA_PARALLEL_H_
