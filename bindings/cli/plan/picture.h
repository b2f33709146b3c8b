// The picture of `tutti plan --draw`: a timeline with a heading that says what it shows.
#ifndef TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
#define TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bindings/cli/plan/request.h"
#include "tutti/cost_model.h"

namespace tutti::cli {

// Plans of all ranks are simulated while they have at most so many steps and refs together, which takes seconds; in
// larger worlds only the plans of the ranks in the picture are.
inline constexpr std::int64_t kMaxSimulated = 8'000'000;

// The timeline of the plans of `family`, which answers `request`, as SVG; of a large world the lanes begin with rank
// `first`. FailedPrecondition: the plans are wrong, which is found where all of them are simulated, for at most 256
// ranks; the heading of a larger world says that its plans are not verified. Where the caller verifies the plans,
// PictureOf does neither. Other errors are those of building plans and of TimelineOf.
absl::StatusOr<std::string> PictureOf(const PlanRequest& request, const PlanFamily& family, const CostModel& model,
                                      Rank first, bool caller_verifies);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_PICTURE_H_
