#include "tutti/cost_model.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tutti {
namespace {

// The machine of docs/selection.md, where every rank has a processor of its own and messages between nodes go over TCP.
constexpr CostModel kDefault = {
    .within_node = {.latency_s = 0.25e-6, .bytes_per_s = 16e9, .message_s = 0.1e-6, .copy_bytes_per_s = 10.5e9},
    .between_nodes = {.latency_s = 3.7e-6, .bytes_per_s = 10e9, .message_s = 1.8e-6, .copy_bytes_per_s = 5.6e9},
    .ranks_per_node = 0,
    .step_s = 0.05e-6,
    .signal_s = 0.22e-6,
    .memory_bytes_per_s = 49e9,
    .copy_bytes_per_s = 60e9,
    .cores_per_node = 0,
    .switch_s = 0.8e-6,
};

std::string ToString(const LinkModel& link) {
  std::string text = absl::StrFormat("%.2f µs + bytes / %.1f GB/s", link.latency_s * 1e6, link.bytes_per_s / 1e9);
  if (link.message_s > 0 || link.copy_bytes_per_s > 0) {
    absl::StrAppendFormat(&text, " (each end: %.1f µs", link.message_s * 1e6);
    if (link.copy_bytes_per_s > 0) absl::StrAppendFormat(&text, " + bytes / %.1f GB/s", link.copy_bytes_per_s / 1e9);
    absl::StrAppend(&text, ")");
  }
  return text;
}

}  // namespace

const CostModel& DefaultCostModel() { return kDefault; }

std::string ToString(const CostModel& model) {
  std::string text = absl::StrCat("messages take ", ToString(model.within_node), " inside a node");
  if (model.ranks_per_node > 0) absl::StrAppend(&text, " of ", model.ranks_per_node, " ranks");
  absl::StrAppendFormat(&text, ", %s between nodes; memory %.1f GB/s", ToString(model.between_nodes),
                        model.memory_bytes_per_s / 1e9);
  if (model.copy_bytes_per_s > 0) absl::StrAppendFormat(&text, ", copies %.1f GB/s", model.copy_bytes_per_s / 1e9);
  absl::StrAppendFormat(&text, "; a step %.0f ns, a signal %.0f ns", model.step_s * 1e9, model.signal_s * 1e9);
  if (model.cores_per_node > 0) {
    absl::StrAppendFormat(&text, "; %d processors to a node, %.1f µs to turn to another rank", model.cores_per_node,
                          model.switch_s * 1e6);
  }
  return text;
}

}  // namespace tutti
