// The strategies that `tutti advise` compares.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_STRATEGIES_H_
#define TUTTI_BINDINGS_CLI_ADVISE_STRATEGIES_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti::cli {

// The demand of a strategy on the training; a flag of `tutti advise` says that the training meets the demand.
enum class Asks { kNothing, kAdam, kLossOfAccuracy };

struct AdvisedStrategy {
  absl::string_view name;
  Asks asks;
  absl::string_view accuracy;  // what the strategy costs in accuracy
  // The strategy differs from the one without its option `hierarchical` only where ranks of one node share its link.
  bool on_shared_links = false;
};

// The strategies of docs/results/training.md that are worth trying; of two that are equally fast the first one changes
// less of the training. The first one of all is fp32 gradient_allreduce.
absl::Span<const AdvisedStrategy> AdvisedStrategies();

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_STRATEGIES_H_
