// The processors that the ranks of a node may run on.
#ifndef TUTTI_COMM_PROCESSORS_H_
#define TUTTI_COMM_PROCESSORS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/usable_processors.h"

namespace tutti {

// The processors that the calling thread may run on, as text for CountProcessors: launchers bind ranks to some
// processors, and a control group may limit the time that its processes have on all of them together.
std::string AllowedProcessors(const std::vector<ProcessorQuota>& quotas = QuotasOfProcess());

// The number of processors in any of `allowed`, texts of AllowedProcessors of the ranks of one node; fewer where all of
// these have quotas that are together worth fewer, each group's counted once, and no more than that of the group around
// it. 0 when a text is "" or no such text.
int CountProcessors(absl::Span<const std::string> allowed);

}  // namespace tutti

#endif  // TUTTI_COMM_PROCESSORS_H_
