// The values that autotuning may try for a model and its strategy.
#ifndef TUTTI_SYNC_TUNING_SPACE_H_
#define TUTTI_SYNC_TUNING_SPACE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "sync/tuner.h"
#include "tutti/algorithm.h"
#include "tutti/plan_builder.h"
#include "tutti/synchronizer.h"
#include "tutti/tuning.h"

namespace tutti {

struct TuningSpace {
  Tuning start;
  std::vector<TuningChange> changes;
  std::string reason;  // why there is nothing to change; empty where there is something
};

// At most kMaxChanges changes of the tuning that `options` and `strategy` give, none of which changes what the ranks
// compute. Pure, so that all ranks try the same.
inline constexpr int kMaxChanges = 8;
TuningSpace TuningSpaceOf(const Strategy& strategy, absl::Span<const Parameter> parameters,
                          const SynchronizerOptions& options, int size, const PlanOptions& plan);

// `strategy` with the schedule and the hierarchy of `tuning`.
Strategy StrategyWith(const Tuning& tuning, Strategy strategy);

}  // namespace tutti

#endif  // TUTTI_SYNC_TUNING_SPACE_H_
