// Lists of the runs of several channels, as executors keep them.
#ifndef TUTTI_ENGINE_RUN_LISTS_H_
#define TUTTI_ENGINE_RUN_LISTS_H_

#include <algorithm>
#include <vector>

#include "engine/run.h"

namespace tutti {

inline bool HasRunOf(const Channel& channel, const std::vector<Run*>& runs) {
  return std::any_of(runs.begin(), runs.end(), [&](const Run* run) { return &run->channel == &channel; });
}

// Takes the runs of `channel` out of `runs`, and returns them in their order.
inline std::vector<Run*> TakeRunsOf(const Channel& channel, std::vector<Run*>& runs) {
  std::vector<Run*> taken;
  std::erase_if(runs, [&](Run* run) {
    if (&run->channel != &channel) return false;
    taken.push_back(run);
    return true;
  });
  return taken;
}

}  // namespace tutti

#endif  // TUTTI_ENGINE_RUN_LISTS_H_
