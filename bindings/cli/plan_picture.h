// Draws plans into files.
#ifndef TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
#define TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti::cli {

// The name of a file that plans can be drawn into, by its end. InvalidArgument lists the ends there may be.
absl::StatusOr<std::string> ParsePictureFile(absl::string_view file);

// FILE.dot holds Graphviz text; all others are drawn by Graphviz's `dot`. NotFound when that is not installed.
absl::Status DrawPlans(absl::Span<const Plan> plans, const std::string& file);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
