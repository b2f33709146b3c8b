// The check that no element is trained twice.
#ifndef TUTTI_SYNC_OVERLAP_H_
#define TUTTI_SYNC_OVERLAP_H_

#include <vector>

#include "absl/status/status.h"
#include "tutti/synchronizer.h"

namespace tutti {

// OK when no two of `weights`, each the weights of the parameter of its name, have a byte in common. InvalidArgument
// names two that have. Ranges of 0 bytes may lie anywhere.
absl::Status CheckDisjoint(std::vector<StateMemory> weights);

}  // namespace tutti

#endif  // TUTTI_SYNC_OVERLAP_H_
