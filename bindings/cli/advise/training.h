// The training for which `tutti advise` compares strategies.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_TRAINING_H_
#define TUTTI_BINDINGS_CLI_ADVISE_TRAINING_H_

#include <algorithm>
#include <cstdint>

#include "tutti/cost_model.h"
#include "tutti/dtype.h"
#include "tutti/synchronizer.h"

namespace tutti::cli {

struct AdvisedTraining {
  int ranks = 0;
  int ranks_per_node = 1;
  std::int64_t parameters = 0;  // f32
  // Parameters of the largest layer. Gradients of a layer are complete all at once, and every layer but the last counts
  // as one of this size. 1: gradients become complete one after the other.
  std::int64_t layer_parameters = 1;
  double step_s = 0;  // a step of a rank, its optimizer included, when nothing is exchanged
  int backwards = 1;  // in a step; gradients are exchanged in the last of them
  // The processors of a rank, which training keeps busy: what communication computes then makes the training slower. 0:
  // communication has processors of its own, as where a GPU trains.
  double cores_per_rank = 0;
  std::int64_t bucket_bytes = SynchronizerOptions().bucket_bytes;
  std::int64_t first_bucket_bytes = SynchronizerOptions().first_bucket_bytes;
  CostModel model = DefaultCostModel();
  bool uses_adam = false;     // strategies that are an Adam of their own compete
  bool accepts_loss = false;  // strategies that have lost accuracy where they were measured compete

  bool one_node() const { return ranks_per_node >= ranks; }
  // Whether several ranks of a node send over the same link.
  bool shares_links() const { return ranks_per_node > 1 && !one_node(); }
  // The parameters that the first bucket, and each later one, has room for.
  std::int64_t first_bucket_parameters() const {
    return std::max<std::int64_t>(first_bucket_bytes / SizeOf(DType::kF32), 1);
  }
  std::int64_t bucket_parameters() const { return std::max<std::int64_t>(bucket_bytes / SizeOf(DType::kF32), 1); }
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_TRAINING_H_
