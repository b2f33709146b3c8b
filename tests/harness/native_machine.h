// Options of plans for a machine whose ranks have a native transport.
#ifndef TUTTI_TESTS_HARNESS_NATIVE_MACHINE_H_
#define TUTTI_TESTS_HARNESS_NATIVE_MACHINE_H_

#include <memory>
#include <utility>
#include <vector>

#include "tutti/cost_model.h"
#include "tutti/plan_builder.h"

namespace tutti {

// The default model, with native collectives of these links inside a node and between nodes.
inline CostModel ModelWithNative(const NativeModel& within_node, const NativeModel& between_nodes) {
  CostModel model = DefaultCostModel();
  model.native_within_node = within_node;
  model.native_between_nodes = between_nodes;
  return model;
}

// Native collectives that are far faster, or far slower, than anything else.
inline constexpr NativeModel kFastNative = {.latency_s = 1e-9, .bytes_per_s = 1e13};
inline constexpr NativeModel kSlowNative = {.latency_s = 1, .bytes_per_s = 1e6};

// `options`, where all that NCCL does is done natively, on these links.
inline PlanOptions WithNative(PlanOptions options, const NativeModel& within_node = kFastNative,
                              const NativeModel& between_nodes = kFastNative) {
  options.native = CollectivesOfNccl();
  options.cost_model = std::make_shared<const CostModel>(ModelWithNative(within_node, between_nodes));
  return options;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_NATIVE_MACHINE_H_
