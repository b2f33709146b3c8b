// The links of a world, measured at set-up where TUTTI_MEASURE_LINKS asks for it.
#ifndef TUTTI_COMM_LINK_MEASUREMENT_H_
#define TUTTI_COMM_LINK_MEASUREMENT_H_

#include "absl/status/statusor.h"
#include "tutti/communicator.h"
#include "tutti/cost_model.h"

namespace tutti {

// `model`, with the numbers of its links such that messages of 1 byte and of 1 MiB are predicted to take the time that
// such messages took between two ranks: the first two of one node, and the first two of different nodes. Collective;
// equal on all ranks. Numbers of links that the world does not have stay as they are. Errors are those of calls.
absl::StatusOr<CostModel> MeasureLinks(Communicator& world, const CostModel& model);

}  // namespace tutti

#endif  // TUTTI_COMM_LINK_MEASUREMENT_H_
