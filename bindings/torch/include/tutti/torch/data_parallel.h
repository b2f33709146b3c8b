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
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/broadcast_optimizer.h"
#include "tutti/torch/module_watch.h"
#include "tutti/torch/replicas.h"

namespace tutti::nn {

using DataParallelOptions = ReplicasOptions;

// DataParallel hooks into the gradients of one module for as long as it lives; the module itself is called as before.
// Gradients live in Tutti's buckets: after every backward(), whatever kind of zero_grad() came before it, p.grad() is a
// tensor in a bucket. A bucket travels while backward still computes the gradients of others, and backward() returns
// when all buckets have arrived.
//
// Create a DataParallel when the module is complete (after to(), requires_grad_), on every rank at the same time: the
// constructor overwrites parameters and buffers by those of rank 0. Parameters that do not require a gradient are
// broadcast there and by Broadcast(), compared by CheckReplicas(), and otherwise left alone. A parameter that is
// registered, replaced, unfrozen or converted later is an error of the next backward(), Step or CheckReplicas; a buffer
// may be, in the same step on all ranks, and is kept equal from then on. After torch::load into the module call
// Broadcast(). With a strategy that exchanges weights, destroy the DataParallel and create a new one instead, because
// torch::load moves weights to other memory; the next backward() says so, or the Step inside which it was called. A
// module has one DataParallel at a time; a module that no shared_ptr owns must outlive it.
//
// A module may be on a GPU, with a communicator of that GPU (CommunicatorOptions::cuda_device). Then the host goes on
// while gradients and weights travel: backward() and Step let torch's current stream wait, on which the program
// computes, and an error that comes later is thrown by a later call. Flush, SaveState and CheckReplicas wait for the
// GPU.
//
// Gradients that are there before backward() count, as in torch: after several backward() p.grad() is the sum of all,
// on all ranks. (A strategy that exchanges weights leaves every rank its own p.grad().) With allow_unused, a parameter
// that no rank has used keeps an undefined gradient, so that optimizers leave it alone. A parameter for which a
// function of the graph returns an undefined gradient counts as unused with allow_unused, and otherwise has the
// gradient 0, as in torch's DistributedDataParallel. A node of the graph may run a backward() of its own, as a
// checkpointed segment does; a parameter must then get its gradient from either the nested or the outer backward(), not
// from both.
//
// The calls of a model come in the order in which its gradients do, and match those of the peers by order: two models
// that are trained by one backward(), and may leave out different parameters on each rank (allow_unused), need a
// communicator each (Communicator::Split).
//
// DataParallel exchanges no sparse gradients, none of a backward() with create_graph, and none of another type than
// their parameter. It knows no parameters or buffers that it leaves to each rank (but for Buffers::kLeave), no join
// (ranks must agree on the number of their steps), no torch::jit::Module, and no model whose parameters are on several
// devices.
//
// Errors are exceptions (errors.h), also out of backward(): a parameter without a gradient, a peer that died. An
// exception names the parameter, the rank and the step. After an error of a peer, training can only go on with a new
// communicator. A backward() that an exception of the module itself ended, on all ranks at the same place, can be
// repeated after zero_grad(); where it has run nested ones, after its loss is gone or Step has told so. A DataParallel
// that is destroyed before that aborts the communicator, on all ranks. Not thread-safe; every backward() of the module
// runs on one thread.
class DataParallel {
 public:
  // Collective; a mistake of one rank is an error on all. `communicator` must outlive the DataParallel. All ranks must
  // destroy their DataParallel at the same step (`async`: at any step after its warm-up), or after an error.
  DataParallel(Communicator& communicator, torch::nn::Module& module, const DataParallelOptions& options = {})
      : module_(module, options.buffers != Buffers::kLeave), replicas_(communicator, Describe(module), options) {}
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Overwrites parameters and buffers of the module by rank 0's, as the constructor does (with Buffers::kLeave only the
  // parameters). Call Broadcast after changing them other than by Step. Collective.
  void Broadcast() {
    HandOverBuffers();
    replicas_.Broadcast();
  }
  // Overwrites options and state of `optimizer` by rank 0's, for a training that is resumed. Collective. The optimizers
  // of all ranks must be of one class, which implements save() and load() as those of torch do, and have groups of
  // the same sizes; an error of one rank is one on all, and leaves both as they were, but for what an optimizer keeps
  // beside them: QAdam's m and v may then be those of rank 0 on some ranks.
  void BroadcastOptimizer(torch::optim::Optimizer& optimizer) { nn::BroadcastOptimizer(replicas_, optimizer); }

  // Calls optimizer.step(), does before and after it what the strategy does to the weights, and makes the buffers
  // equal. For a strategy that exchanges only gradients (and a module without buffers) a plain optimizer.step() is
  // enough, and that of tutti::nn::QAdam does the same as Step. With any other strategy, weights that change outside of
  // Step are an error of the next backward() or Step, unless they are put back before, as after an evaluation with
  // other weights; and since Step may change all weights, a backward() through a forward of before Step is torch's
  // error that a variable was modified by an inplace operation. Collective, except for `async` after its warm-up: there
  // Step makes no collective call and leaves the buffers alone. Throws, before anything has changed, when the gradients
  // are this rank's alone: accumulated under NoSync, or not made by backward().
  void Step(torch::optim::Optimizer& optimizer) {
    Update([&] { optimizer.step(); }, /*uses_gradients=*/true, reinterpret_cast<std::uintptr_t>(&optimizer));
  }
  // Step(optimizer) for several optimizers, closures or scalers: `update` changes the weights, and may call backward().
  // Gradients that are this rank's alone are only found after `update` has used them: after that error replicas differ
  // until Broadcast() (and BroadcastOptimizer).
  void Step(const std::function<void()>& update) { Update(update, /*uses_gradients=*/false, /*optimizer=*/0); }

  // Gives all ranks the average of their weights, and makes buffers equal as DataParallelOptions::buffers says, before
  // an evaluation or a checkpoint. Leaves weights alone that the strategy keeps equal anyway. Collective.
  void Flush() {
    HandOverBuffers();
    replicas_.Flush();
  }

  // Whether `mine` is true on any rank: a loss scaler that found an overflow in its gradients must skip the step on all
  // ranks or on none, or scales and weights drift apart. Called between backward() and Step, on all ranks and in every
  // step; for `async` after its warm-up it returns `mine`.
  bool AgreeOnOverflow(bool mine) { return replicas_.AgreeOnOverflow(mine); }

  // Declares that the losses of all backward() from here on are multiplied by `scale`: before each backward(), on all
  // ranks. What a codec with error_feedback=true holds back follows the scale. See Synchronizer::SetLossScale.
  void SetLossScale(double scale) { replicas_.SetLossScale(scale); }

  // The rounds of `async`: see Synchronizer.
  void Pause() { replicas_.synchronizer().Pause(); }
  void Resume() { replicas_.synchronizer().Resume(); }
  void Stop() { replicas_.synchronizer().Stop(); }

  // The state of the Synchronizer. A checkpoint is this state together with the module and its optimizer
  // (docs/checkpoints.md). SaveState throws after an exchange or a Broadcast that failed. LoadState is collective, and
  // comes last, after the weights were restored.
  std::string SaveState() const { return replicas_.SaveState(); }
  void LoadState(const std::vector<std::string>& states) { replicas_.LoadState(states); }

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

  // Throws, naming a rank and a tensor, unless parameters and buffers are equal on all ranks to the last bit. With a
  // strategy that exchanges weights they are equal after Flush. Buffers that a forward changes, as that of BatchNorm in
  // train mode does, are equal from Step or Flush to the next forward; with Buffers::kLeave they are not compared.
  // Collective.
  void CheckReplicas() {
    HandOverBuffers();
    replicas_.CheckReplicas();
  }

  // The strategy name in full, with every option.
  const std::string& strategy() const { return replicas_.synchronizer().strategy(); }
  // What autotuning (DataParallelOptions::autotune) has tried and chosen.
  const TuningReport& tuning() const { return replicas_.synchronizer().tuning(); }
  // The traffic since the last call, and the time that it took, with that of buffers.
  SyncStatistics TakeStatistics() { return replicas_.TakeStatistics(); }

 private:
  friend class QAdam;

  ReplicatedModel Describe(const torch::nn::Module& module) const;
  // Tells the replicas of buffers that the module has replaced or got: before each call that makes buffers equal.
  void HandOverBuffers() {
    if (const auto buffers = module_.FindNewBuffers()) replicas_.SetBuffers(*buffers);
  }
  void CountNoSync(int change);
  void Update(const std::function<void()>& update, bool uses_gradients, std::uintptr_t optimizer);

  ModuleWatch module_;
  Replicas replicas_;
  int no_syncs_ = 0;
};

inline ReplicatedModel DataParallel::Describe(const torch::nn::Module& module) const {
  ReplicatedModel model;
  model.parameters = ModuleWatch::Listed(module.named_parameters());
  model.buffers = ModuleWatch::Listed(module.named_buffers());
  model.check = [this] { return module_.Check(); };
  model.advice_when_written =
      "DataParallel::Step, which must see it: call replicas.Step(optimizer) in place of optimizer.step(), and after "
      "writing weights in place replicas.Broadcast(), or replicas.LoadState() where every rank has restored its own";
  model.advice_when_moved =
      "(torch::load, set_data, to), where the strategy does not find it: destroy this DataParallel and create another "
      "one afterwards";
  return model;
}

inline void DataParallel::CountNoSync(int change) {
  no_syncs_ += change;
  replicas_.synchronizer().set_synchronize(no_syncs_ == 0);
}

inline void DataParallel::Update(const std::function<void()>& update, bool uses_gradients, std::uintptr_t optimizer) {
  replicas_.BeginUpdate(uses_gradients, optimizer);
  auto failed = c10::make_scope_exit([this] { replicas_.CancelUpdate(); });
  update();
  failed.release();
  HandOverBuffers();
  replicas_.EndUpdate();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_DATA_PARALLEL_H_
