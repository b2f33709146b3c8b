// The work of a synchronizer, and its state between the calls of a step.
#ifndef TUTTI_SYNC_SYNCHRONIZER_IMPL_H_
#define TUTTI_SYNC_SYNCHRONIZER_IMPL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/async_average.h"
#include "sync/buckets.h"
#include "sync/caller.h"
#include "sync/checkpoint.h"
#include "sync/gradient_exchange.h"
#include "sync/weight_exchange.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

inline absl::Duration SyncInterval(const Strategy& async) {
  return absl::Milliseconds(async.integer("sync_interval_ms"));
}

// The functions have the names of Synchronizer's and are called on its one thread.
class Synchronizer::Impl {
 public:
  Impl(Communicator& its_communicator, const Caller& its_caller, std::vector<Parameter> its_parameters,
       Strategy its_strategy)
      : communicator(its_communicator),
        caller(its_caller),
        parameters(std::move(its_parameters)),
        strategy(std::move(its_strategy)),
        name(strategy.ToString()),
        participants(ParticipantsOf(strategy, communicator.size(), communicator.plan_options())),
        phase(strategy.algorithm->phase) {}

  // Makes the buckets and exchanges. Called once, before everything else. Collective.
  absl::Status MakeExchanges(const Layout& layout, const SynchronizerOptions& options);

  bool exchanges_gradients() const { return step < gradient_steps; }
  bool exchanges_weights() const { return ExchangesWeights(*strategy.algorithm); }
  bool steps_together() const { return background == nullptr || exchanges_gradients(); }

  absl::Status BeginForward();
  absl::Status BeginBackward();
  absl::Status FinishBackward();
  absl::Status CancelBackward();
  absl::Status BeforeStep();
  absl::Status AfterStep();

  absl::Status Flush();
  absl::Status Restart();
  std::string Save();
  absl::Status Load(absl::Span<const std::string> states);
  absl::StatusOr<bool> AgreeOnOverflow(bool mine);
  absl::Status SetLossScale(double scale);

  // The options of a call that is made now for `purpose`.
  CallOptions Call(Purpose purpose, const CallOptions& options = {}) const {
    const bool counted_alike = steps_together() && purpose != Purpose::kState;
    return caller.Sign(purpose, counted_alike ? round_ : 0, options);
  }

  Communicator& communicator;
  const Caller caller;
  const std::vector<Parameter> parameters;
  const Strategy strategy;
  const std::string name;
  const std::vector<Rank> participants;
  const Phase phase;
  int bucket_count = 0;
  std::unique_ptr<GradientExchange> gradients;
  std::unique_ptr<WeightExchange> weights;
  std::unique_ptr<AsyncAverage> background;
  std::int64_t gradient_steps = 0;  // number of steps, from the first, that exchange gradients
  std::int64_t step = 0;
  double loss_scale = 1;
  bool synchronize = true;
  bool in_forward = false;
  bool replicas_are_set = false;
  MomentumSource* momentum = nullptr;
  SyncStatistics statistics;

 private:
  // Makes the buckets of gradients, and those of weights, which `of_weights` exchanges.
  absl::Status MakeBuckets(Communicator& of_weights, const Layout& layout, const SynchronizerOptions& options);
  absl::Status MakeGradients(const Strategy& of, const Layout& layout, const SynchronizerOptions& options);
  // Begins this step's exchange of weights, once this rank has done what the last exchange still owed its peers.
  absl::Status Launch();
  // Copies the weights that have arrived over the present ones, if an exchange is under way.
  absl::Status Arrive();
  // Drops the round in the background, and the outputs of an exchange whose forward has perhaps not happened.
  void ForgetBegun();
  // Waits until the exchange has ended, in which this rank may still have work to do for its peers.
  absl::Status EndExchange() { return weights == nullptr ? absl::OkStatus() : weights->Finish(statistics); }
  void EndStep();

  // OK when the strategy and the moment allow a change of the loss scale.
  absl::Status CheckScalable() const;

  CheckpointOwner Owner() const;
  // The buckets that have states.
  absl::Span<ExchangeBucket> buckets() const;

  // The number, from 1, of the step that comes or is under way, which ranks compare in their calls. It counts more than
  // `step`: also optimizer steps before which this rank, if not its peers, exchanged no gradients, and 10⁹ for each
  // backward that was given up when buckets had left. So a rank that repeats a step never meets a rank that goes on.
  std::uint64_t round_ = 1;
  bool exchanged_ = false;  // gradients were exchanged since the optimizer's last step
};

}  // namespace tutti

#endif  // TUTTI_SYNC_SYNCHRONIZER_IMPL_H_
