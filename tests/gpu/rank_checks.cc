#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

std::vector<RankCheck> AllRankChecks() {
  std::vector<RankCheck> all;
  for (const auto checks : {NativeChecks, CollectiveChecks, MessageChecks, StreamChecks, GroupChecks, StrategyChecks,
                            TrainingChecks, FailureChecks}) {
    for (RankCheck& check : checks()) all.push_back(std::move(check));
  }
  std::vector<RankCheck> staged;
  std::ranges::copy_if(all, std::back_inserter(staged), &RankCheck::also_staged);
  for (RankCheck& check : staged) {
    check.name = absl::StrCat("staged_", check.name);
    check.is_staged = true;
    std::erase(check.sizes, 1);  // a rank alone sends nothing
    all.push_back(std::move(check));
  }
  return all;
}

}  // namespace tutti::gpu
