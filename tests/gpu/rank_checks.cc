#include <utility>

#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

std::vector<RankCheck> AllRankChecks() {
  std::vector<RankCheck> all;
  for (const auto checks : {NativeChecks, CollectiveChecks, MessageChecks, StreamChecks, GroupChecks, StrategyChecks,
                            TrainingChecks, FailureChecks}) {
    for (RankCheck& check : checks()) all.push_back(std::move(check));
  }
  return all;
}

}  // namespace tutti::gpu
