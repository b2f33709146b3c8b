// The optimizers that a replay can take its steps with.
#ifndef TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_
#define TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/algorithm.h"
#include "tutti/synchronizer.h"

namespace tutti::cli {

class ReplayOptimizer {
 public:
  virtual ~ReplayOptimizer() = default;
  // Takes one optimizer step on the weights.
  virtual absl::Status Step() = 0;
};

// "sgd" and "adam", as torch.optim has them, and "qadam" (tutti/qadam.h): without options but the learning rate.
std::vector<std::string> ReplayOptimizerNames();

// The name of the optimizer that is asked for; when none is (""), qadam for a strategy that exchanges momentum, sgd for
// any other. InvalidArgument unless qadam comes with a strategy that exchanges momentum, and any other optimizer with
// another strategy.
absl::StatusOr<std::string> ChooseReplayOptimizer(const Strategy& strategy, const std::string& asked);

// Makes the optimizer `name` for `weights`, the only parameter of `synchronizer`. The optimizer reads the contents of
// `gradient` at each step. All arguments must outlive it. Collective.
absl::StatusOr<std::unique_ptr<ReplayOptimizer>> MakeReplayOptimizer(const std::string& name, double lr,
                                                                     Synchronizer& synchronizer,
                                                                     absl::Span<const float> gradient,
                                                                     absl::Span<float> weights);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_
