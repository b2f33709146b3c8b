// Timelines on paper.
#ifndef TUTTI_BINDINGS_CLI_PLAN_TIMELINE_SVG_H_
#define TUTTI_BINDINGS_CLI_PLAN_TIMELINE_SVG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "bindings/cli/plan/timeline.h"

namespace tutti::cli {

// An SVG of 1,200 pixels' width: under the title, the notes and the legend a lane for each rank, time to the right.
std::string SvgOf(const Timeline& timeline, absl::string_view title, absl::Span<const std::string> notes);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_TIMELINE_SVG_H_
