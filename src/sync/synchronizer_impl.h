// What a synchronizer does, and the state in which it is between the calls of a step.
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

// The calls of Synchronizer that have these names, on its one thread.
class Synchronizer::Impl {
 public:
  Impl(Communicator& its_communicator, std::vector<Parameter> its_parameters, Strategy its_strategy)
      : communicator(its_communicator),
        parameters(std::move(its_parameters)),
        strategy(std::move(its_strategy)),
        name(strategy.ToString()),
        participants(ParticipantsOf(strategy, communicator.size(), communicator.plan_options())),
        phase(strategy.algorithm->phase) {}

  // Once, before all else. Collective.
  absl::Status MakeExchanges(const Layout& layout, const SynchronizerOptions& options);

  bool exchanges_gradients() const { return step < gradient_steps; }
  bool exchanges_weights() const { return ExchangesWeights(*strategy.algorithm); }
  bool steps_together() const { return background == nullptr || exchanges_gradients(); }

  absl::Status BeginForward();
  absl::Status BeginBackward();
  absl::Status FinishBackward();
  absl::Status BeforeStep();
  absl::Status AfterStep();

  absl::Status Flush();
  absl::Status Restart();
  std::string Save();
  absl::Status Load(absl::Span<const std::string> states);
  absl::StatusOr<bool> AgreeOnOverflow(bool mine);

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const Strategy strategy;
  const std::string name;
  const std::vector<Rank> participants;
  const Phase phase;
  int bucket_count = 0;
  std::unique_ptr<GradientExchange> gradients;
  std::unique_ptr<WeightExchange> weights;
  std::unique_ptr<AsyncAverage> background;
  std::int64_t gradient_steps = 0;  // steps from the first that exchange gradients
  std::int64_t step = 0;
  bool synchronize = true;
  bool in_forward = false;
  bool replicas_are_set = false;
  MomentumSource* momentum = nullptr;
  SyncStatistics statistics;

 private:
  absl::Status MakeGradients(const Strategy& of, const Layout& layout, const SynchronizerOptions& options);
  // Begins this step's exchange of weights, when what the last one still had to do for its peers is done.
  absl::Status Launch();
  // The weights become what has arrived, if something travels.
  absl::Status Arrive();
  // A round in the background; outputs, perhaps of a forward that has not happened.
  void ForgetBegun();
  // What this rank still has to do for its peers.
  absl::Status EndExchange() { return weights == nullptr ? absl::OkStatus() : weights->Finish(statistics); }
  void EndStep();

  CheckpointOwner Owner() const;
  // Those that have state.
  absl::Span<ExchangeBucket> buckets() const;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_SYNCHRONIZER_IMPL_H_
