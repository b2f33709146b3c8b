// The time of a training step with a strategy, predicted from the costs of the strategy's own plans.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_PREDICTION_H_
#define TUTTI_BINDINGS_CLI_ADVISE_PREDICTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "bindings/cli/advise/training.h"
#include "tutti/algorithm.h"

namespace tutti::cli {

// All of these are means of a step.
struct StepPrediction {
  std::int64_t wire_bytes = 0;  // moved by the rank that moves most (WireBytes)
  double communication_s = 0;   // sum over the buckets of the time from launch to end
  double step_s = 0;            // the step, with what of the communication is not hidden

  // The share of the communication that the training does not notice: 1 - (step_s - training.step_s) / communication_s.
  double hidden(const AdvisedTraining& training) const;
};

// Backward takes two thirds of a step, or of each of the parts of a step that accumulates gradients, spends as long on
// each parameter, and completes gradients layer by layer.
// Buckets travel one after the other, as soon as they are full; weights travel from the moment on at which the
// synchronizer sends them. Unimplemented with the reason where the strategy does not serve the training.
absl::StatusOr<StepPrediction> PredictStep(const Strategy& strategy, const AdvisedTraining& training);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_PREDICTION_H_
