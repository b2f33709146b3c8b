// A model of a link that predicts what was measured.
#ifndef TUTTI_COMM_LINK_FIT_H_
#define TUTTI_COMM_LINK_FIT_H_

#include "comm/link_times.h"
#include "tutti/cost_model.h"

namespace tutti {

// `link`, with numbers by which messages of few and of many bytes are predicted to take the measured time; step_s is
// CostModel::step_s. Between nodes, a link that is slower than `link` is slow on the way, and the processors take as
// long as before, or what each further message at once was measured to take; all numbers of other links change by one
// factor per message and one per byte. Times that no link can have are taken for the nearest that one can. Where ranks
// of different hosts stand in line for processors, the time of a processor for a message between nodes is that with all
// ranks sending, up to four times that of two ranks alone: a single short message then takes less than is predicted.
LinkModel FitLink(const LinkModel& link, double step_s, const LinkNanos& nanos, bool between_nodes);

}  // namespace tutti

#endif  // TUTTI_COMM_LINK_FIT_H_
