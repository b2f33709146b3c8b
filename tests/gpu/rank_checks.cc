#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

std::vector<RankCheck> AllRankChecks() {
  std::vector<RankCheck> all;
  for (const auto& checks :
       {NativeChecks(), CollectiveChecks(), StreamChecks(), GroupChecks(), StrategyChecks(), FailureChecks()}) {
    all.insert(all.end(), checks.begin(), checks.end());
  }
  return all;
}

}  // namespace tutti::gpu
