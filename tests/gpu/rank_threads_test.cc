// All checks of several ranks on the fakes of CUDA and NCCL: so the checks are right when a GPU is at hand.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {
namespace {

using Case = std::pair<std::string, int>;  // the name of a check, and a number of ranks

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const RankCheck& check : AllRankChecks()) {
    for (const int size : check.sizes) cases.emplace_back(check.name, size);
  }
  return cases;
}

class RankThreadsSlowTest : public ::testing::TestWithParam<Case> {};

TEST_P(RankThreadsSlowTest, Passes) {
  for (const RankCheck& check : AllRankChecks()) {
    if (check.name != GetParam().first) continue;
    EXPECT_EQ(RunOnFakes(check, GetParam().second), absl::OkStatus());
  }
}

INSTANTIATE_TEST_SUITE_P(Checks, RankThreadsSlowTest, ::testing::ValuesIn(Cases()),
                         [](const auto& tested) { return absl::StrCat(tested.param.first, tested.param.second); });

}  // namespace
}  // namespace tutti::gpu
