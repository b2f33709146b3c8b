// The processors that the ranks of a node may run on.
#ifndef TUTTI_COMM_PROCESSORS_H_
#define TUTTI_COMM_PROCESSORS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti {

// The processors that the calling thread may run on, as text for CountProcessors: launchers bind ranks to some
// processors.
std::string AllowedProcessors();

// The number of processors in any of `allowed`, texts of AllowedProcessors of the ranks of one node. 0 when a text is
// "" or no such text.
int CountProcessors(absl::Span<const std::string> allowed);

}  // namespace tutti

#endif  // TUTTI_COMM_PROCESSORS_H_
