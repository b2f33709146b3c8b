// The cost of plans on a machine that a few numbers describe, computed without running them.
#ifndef TUTTI_COST_H_
#define TUTTI_COST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// One direction of a rank's connection (Hockney's model): a message of b bytes takes latency_s + b / bytes_per_s.
// All messages of a rank in one direction share its bandwidth, one after the other.
struct LinkModel {
  double latency_s = 1e-6;
  double bytes_per_s = 10e9;
};

struct CostModel {
  LinkModel within_node;
  LinkModel between_nodes;
  // Consecutive ranks that share a node; 0: all ranks do.
  int ranks_per_node = 0;
  // Time to issue one step. Steps of one rank that compute run one after the other.
  double step_s = 100e-9;
  // Bytes a rank can read or write per second, wherever they lie.
  double memory_bytes_per_s = 10e9;
};

struct Cost {
  std::int64_t steps = 0;         // of the rank with the most steps
  std::int64_t messages = 0;      // sent by the rank that sends most
  std::int64_t wire_bytes = 0;    // of the rank that moves the most bytes (see WireBytes)
  std::int64_t memory_bytes = 0;  // read and written by the steps that compute, of the busiest rank
  double seconds = 0;             // from the common start until the last rank ends
};

// Simulates the plans of all ranks (given as for Verify) on the model; a step starts as soon as its dependencies, its
// message or its signal is there. Errors are those of Verify, whose form, matching and progress must hold.
absl::StatusOr<Cost> CostOf(absl::Span<const Plan> plans, const CostModel& model);

}  // namespace tutti

#endif  // TUTTI_COST_H_
