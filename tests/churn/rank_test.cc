// The lines that a process of several ranks says.
#include "tests/churn/rank.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"

namespace tutti::churn {
namespace {

using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

TEST(RanksAsThreadsDeathTest, SpeakForThemselvesAsOneAndAnswer) {
  const Round round = {.path = Path::kInproc,
                       .ranks = 3,
                       .timeout = absl::Seconds(30),
                       .activities = 2,
                       .worlds = 3,
                       .largest_count = 64};
  int asked[2];  // closed when the question is under way
  ASSERT_EQ(pipe2(asked, O_CLOEXEC), 0);
  RankProcesses ranks(1, [&](Rank, Lines& lines) {
    close(asked[1]);
    char none = 0;
    if (read(asked[0], &none, 1) != 0) return 1;
    return RunRanksAsThreads(round, lines);
  });
  ranks.Say(0, "where");
  close(asked[0]);
  close(asked[1]);
  std::vector<std::string> said;
  while (std::optional<std::string> line = ranks.Hear(0, absl::Now() + absl::Minutes(1))) said.push_back(*line);
  EXPECT_EQ(ranks.AwaitEnd(0, absl::Now() + absl::Minutes(1)), 0);
  EXPECT_EQ(std::count(said.begin(), said.end(), "working"), 1);
  EXPECT_EQ(std::count(said.begin(), said.end(), "idle"), 1);
  EXPECT_THAT(said, Contains(StartsWith("where")));
  EXPECT_THAT(said, Not(Contains(StartsWith("complaint"))));
}

}  // namespace
}  // namespace tutti::churn
