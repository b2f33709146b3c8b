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

// The one that is asked for; when none is ("") qadam for the strategy of that name, sgd for any other. InvalidArgument
// when `strategy` does not go with it: one that exchanges momentum goes with qadam, the others do not.
absl::StatusOr<std::string> ChooseReplayOptimizer(const Strategy& strategy, const std::string& asked);

// One for `weights`, the only parameter of `synchronizer`, which reads what is in `gradient` at each step. All must
// outlive it. Collective.
absl::StatusOr<std::unique_ptr<ReplayOptimizer>> MakeReplayOptimizer(const std::string& name, double lr,
                                                                     Synchronizer& synchronizer,
                                                                     absl::Span<const float> gradient,
                                                                     absl::Span<float> weights);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_
