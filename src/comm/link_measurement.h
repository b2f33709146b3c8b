// The links of a world, measured at set-up (TUTTI_MEASURE_LINKS).
#ifndef TUTTI_COMM_LINK_MEASUREMENT_H_
#define TUTTI_COMM_LINK_MEASUREMENT_H_

#include "absl/status/statusor.h"
#include "tutti/communicator.h"
#include "tutti/cost_model.h"

namespace tutti {

// `model`, with the numbers of the link between nodes, and, if `within_nodes`, of that inside a node, as measured by
// the first two ranks that have such a link; and with the time of a processor for a message between nodes, as measured
// by all ranks of a world of up to 64, which send each other a few bytes at once. Collective; equal on all ranks. Links
// that the world does not have stay as they are. Takes milliseconds: docs/selection.md has figures. Errors are those of
// calls.
absl::StatusOr<CostModel> MeasureLinks(Communicator& world, const CostModel& model, bool within_nodes);

}  // namespace tutti

#endif  // TUTTI_COMM_LINK_MEASUREMENT_H_
