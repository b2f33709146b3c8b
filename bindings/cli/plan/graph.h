// Draws the steps of plans, and what they depend on, into files.
#ifndef TUTTI_BINDINGS_CLI_PLAN_GRAPH_H_
#define TUTTI_BINDINGS_CLI_PLAN_GRAPH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti::cli {

// `file`, when its end names a format that plans can be drawn in. InvalidArgument lists the valid ends.
absl::StatusOr<std::string> ParseGraphFile(absl::string_view file);

// The largest graph that `dot` draws in seconds and that a reader still finds a way through. FILE.dot has no limit.
inline constexpr std::int64_t kMaxDrawnSteps = 1500;
inline constexpr std::int64_t kMaxDrawnArrows = 2000;

// InvalidArgument, with the limit and what would help, when the steps of all ranks are too many for a graph.
absl::Status CheckDrawable(absl::Span<const Plan> plans, const std::string& file);

// FILE.dot holds Graphviz text; all others are drawn by Graphviz's `dot`. NotFound when dot cannot be started,
// DeadlineExceeded when dot takes longer than `limit`, after which dot is ended.
absl::Status DrawSteps(absl::Span<const Plan> plans, const std::string& file, absl::Duration limit = absl::Minutes(1));

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_GRAPH_H_
