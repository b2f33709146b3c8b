// One rank of a replay: a training whose gradients are given.
#ifndef TUTTI_BINDINGS_CLI_REPLAY_RANK_H_
#define TUTTI_BINDINGS_CLI_REPLAY_RANK_H_

#include <string>

#include "absl/status/status.h"
#include "bindings/cli/replay/npy.h"
#include "tutti/communicator.h"

namespace tutti::cli {

struct ReplayOptions {
  std::string strategy;
  std::string gradients_file;
  std::string weights_file;
  std::string out_file;
  double lr = 0;
  std::string optimizer;  // "": ChooseReplayOptimizer chooses
  std::string transport = "inproc";
};

// The extents of [steps, ranks, n] gradients; `count` is n.
struct ReplayShape {
  std::int64_t steps = 0;
  int ranks = 0;
  std::int64_t count = 0;
};

// InvalidArgument names the file whose shape is wrong, and what would be right.
absl::StatusOr<ReplayShape> ShapeOfReplay(const ReplayOptions& options, const Array& gradients, const Array& weights);

// Trains one parameter of `shape.count` elements on this rank of `communicator`, and writes the weights after each
// step to this rank's part of `result`, which has the shape of `gradients`. Collective.
absl::Status ReplayRank(Communicator& communicator, const ReplayOptions& options, const ReplayShape& shape,
                        const Array& gradients, const Array& weights, Array& result);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_REPLAY_RANK_H_
