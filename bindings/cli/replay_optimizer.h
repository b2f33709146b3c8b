// The optimizers that a replay can take its steps with.
#ifndef TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_
#define TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tutti::cli {

class ReplayOptimizer {
 public:
  virtual ~ReplayOptimizer() = default;
  // weights ← weights after a step.
  virtual absl::Status Step() = 0;
};

// "sgd" and "adam", as torch.optim has them, without options but the learning rate.
std::vector<std::string> ReplayOptimizerNames();

// One for `weights`, which reads what is in `gradient` at each step. Both must outlive it.
std::unique_ptr<ReplayOptimizer> MakeReplayOptimizer(const std::string& name, double lr,
                                                     absl::Span<const float> gradient, absl::Span<float> weights);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_REPLAY_OPTIMIZER_H_
