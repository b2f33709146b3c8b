#include "tutti/cost_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tutti/plan_builder.h"

namespace tutti {
namespace {

// The machine of docs/selection.md, where every rank has a processor of its own and messages between nodes go over TCP.
constexpr CostModel kDefault = {
    .within_node = {.latency_s = 0.3e-6,
                    .bytes_per_s = 16e9,
                    .message_s = 0.45e-6,
                    .copy_bytes_per_s = 6e9,
                    .announced_bytes = 32 << 10,
                    .announced_bytes_per_s = 13e9},
    .between_nodes = {.latency_s = 1.5e-6, .bytes_per_s = 10e9, .message_s = 2.2e-6, .copy_bytes_per_s = 6.6e9},
    .ranks_per_node = 0,
    .step_s = 0.06e-6,
    .signal_s = 0.25e-6,
    .memory_bytes_per_s = 25e9,
    .copy_bytes_per_s = 40e9,
    .scratch_bytes_per_s = 14e9,
    .cores_per_node = 0,
    .switch_s = 1.4e-6,
};

std::string Rate(double bytes_per_s) {
  return bytes_per_s < 1e9 ? absl::StrFormat("%.1f MB/s", bytes_per_s / 1e6)
                           : absl::StrFormat("%.1f GB/s", bytes_per_s / 1e9);
}

std::string ToString(const LinkModel& link) {
  std::string text = absl::StrFormat("%.2f µs + bytes / %s", link.latency_s * 1e6, Rate(link.bytes_per_s));
  if (link.message_s > 0 || link.copy_bytes_per_s > 0) {
    absl::StrAppendFormat(&text, " (each end: %.2f µs", link.message_s * 1e6);
    if (link.copy_bytes_per_s > 0) absl::StrAppend(&text, " + bytes / ", Rate(link.copy_bytes_per_s));
    if (link.announced_bytes > 0) {
      absl::StrAppendFormat(&text, "; from %d KiB on one copy at %s", link.announced_bytes >> 10,
                            Rate(link.announced_bytes_per_s));
    }
    absl::StrAppend(&text, ")");
  }
  return text;
}

std::string ToString(const NativeModel& native) {
  return absl::StrFormat("%.2f µs + bytes / %s", native.latency_s * 1e6, Rate(native.bytes_per_s));
}

double Seconds(std::int64_t bytes, double bytes_per_s) {
  return bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0;
}

}  // namespace

double SendingSeconds(const LinkModel& link, std::int64_t bytes) {
  return link.message_s + (link.Announces(bytes) ? 0 : Seconds(bytes, link.copy_bytes_per_s));
}

double TransferSeconds(const LinkModel& link, std::int64_t bytes) {
  return link.Announces(bytes) ? 0 : Seconds(bytes, link.bytes_per_s);
}

double ReceivingSeconds(const LinkModel& link, std::int64_t bytes) {
  const double once = std::min(link.announced_bytes_per_s, link.bytes_per_s);
  return link.message_s + Seconds(bytes, link.Announces(bytes) ? once : link.copy_bytes_per_s);
}

const CostModel& DefaultCostModel() { return kDefault; }

const CostModel& PlanOptions::model() const { return cost_model != nullptr ? *cost_model : DefaultCostModel(); }

std::string ToString(const CostModel& model) {
  std::string text = absl::StrCat("messages take ", ToString(model.within_node), " inside a node");
  if (model.ranks_per_node > 0) absl::StrAppend(&text, " of ", model.ranks_per_node, " ranks");
  absl::StrAppendFormat(&text, ", %s between nodes; memory %.1f GB/s", ToString(model.between_nodes),
                        model.memory_bytes_per_s / 1e9);
  if (model.copy_bytes_per_s > 0) absl::StrAppendFormat(&text, ", copies %.1f GB/s", model.copy_bytes_per_s / 1e9);
  if (model.scratch_bytes_per_s > 0) {
    absl::StrAppendFormat(&text, ", scratch %.1f GB/s", model.scratch_bytes_per_s / 1e9);
  }
  absl::StrAppendFormat(&text, "; a step %.0f ns, a signal %.0f ns", model.step_s * 1e9, model.signal_s * 1e9);
  if (model.cores_per_node > 0) {
    absl::StrAppendFormat(&text, "; %d processors to a node, %.1f µs to turn to another rank", model.cores_per_node,
                          model.switch_s * 1e6);
  }
  const bool near = model.native_within_node.bytes_per_s > 0;
  const bool far = model.native_between_nodes.bytes_per_s > 0;
  if (near || far) {
    absl::StrAppend(&text, "; native collectives take ",
                    near ? absl::StrCat(ToString(model.native_within_node), " inside a node") : "",
                    near && far ? ", " : "",
                    far ? absl::StrCat(ToString(model.native_between_nodes), " between nodes") : "");
  }
  return text;
}

}  // namespace tutti
