// Draws plans into files.
#ifndef TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
#define TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti::cli {

// FILE.dot holds Graphviz text; FILE.svg is drawn by Graphviz's `dot`, which must be installed. InvalidArgument when
// the name ends in neither.
absl::Status DrawPlans(absl::Span<const Plan> plans, const std::string& file);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
