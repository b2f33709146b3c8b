// What the processes of a check report, with one rank on the fakes of CUDA and NCCL, which know only one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "tests/gpu/rank_check.h"
#include "tests/harness/fake_device.h"

namespace tutti::gpu {
namespace {

using ::testing::HasSubstr;

absl::Status ResultOf(std::function<absl::Status(CheckedRank&)> run, absl::Duration timeout = absl::Seconds(60)) {
  UseFakeDevices();
  return RunOnGpu({.name = "tested", .sizes = {1}, .timeout = timeout, .run = std::move(run)}, 1, {});
}

TEST(RankProcessesTest, ACheckPassesOnTheFakes) {
  for (const RankCheck& check : AllRankChecks()) {
    if (check.name != "native" && check.name != "stream_order") continue;
    EXPECT_EQ(ResultOf(check.run), absl::OkStatus()) << check.name;
  }
}

TEST(RankProcessesTest, TheErrorOfARankIsReportedWhole) {
  const absl::Status status = ResultOf([](CheckedRank& rank) {
    rank.note("something");
    return absl::DataLossError("element 3\nis wrong");
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: DATA_LOSS: element 3\nis wrong"));
}

TEST(RankProcessesTest, ARankThatDiesHasNotPassed) {
  const absl::Status status = ResultOf([](CheckedRank& rank) { return rank.die(); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0: UNAVAILABLE: ended without a report"));
}

TEST(RankProcessesTest, ARankThatHangsIsKilled) {
  const absl::Time begin = absl::Now();
  const absl::Status status = ResultOf(
      [](CheckedRank&) {
        absl::SleepFor(absl::Hours(1));
        return absl::OkStatus();
      },
      absl::Seconds(1));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not reported in time"));
  EXPECT_LT(absl::Now() - begin, absl::Minutes(5));
}

}  // namespace
}  // namespace tutti::gpu
