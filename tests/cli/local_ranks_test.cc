#include "bindings/cli/local_ranks.h"

#include <cstddef>
#include <iterator>
#include <latch>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

// The status of a world whose ranks return `results`.
absl::Status RunWith(const std::vector<absl::Status>& results) {
  std::latch all_joined(std::ssize(results));  // a rank that returns earlier leaves while others still join
  return RunLocalRanks(
      static_cast<int>(results.size()), "inproc", [](Rank) { return CommunicatorOptions(); },
      [&](Communicator& communicator) {
        all_joined.arrive_and_wait();
        return results[static_cast<std::size_t>(communicator.rank())];
      });
}

TEST(LocalRanksTest, AnErrorComesBeforeItsConsequences) {
  const absl::Status cause = absl::InternalError("the cause");
  const absl::Status left = absl::UnavailableError("rank 3 has left");
  const absl::Status aborted = absl::AbortedError("aborted by rank 1");
  EXPECT_EQ(RunWith({aborted, left, absl::OkStatus(), cause}), cause);
  EXPECT_EQ(RunWith({left, aborted, cause}), cause);
  EXPECT_EQ(RunWith({cause, left, absl::NotFoundError("of a later rank")}), cause);
  EXPECT_EQ(RunWith({aborted, left, absl::UnavailableError("rank 1 has left")}), left);
  EXPECT_EQ(RunWith({absl::OkStatus(), aborted}), aborted);
  EXPECT_TRUE(RunWith({absl::OkStatus(), absl::OkStatus()}).ok());
}

// Only the root needs more than its arena has; the others wait for a rank that has left.
TEST(LocalRanksTest, TheArenaOfOneRankIsNamed) {
  const CommandRun run =
      RunTutti("bench gather --transport inproc --ranks 4 --root 3 -b 8M -e 8M --iters 1", "TUTTI_ARENA_BYTES=4M ");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("arena: 8388608 bytes asked for"));
  EXPECT_THAT(run.err, HasSubstr("set TUTTI_ARENA_BYTES to a larger size"));
}

TEST(LocalRanksTest, AWrongVariableIsNamed) {
  const CommandRun run = RunTutti("bench all_reduce --transport inproc -b 4 -e 4 --iters 1", "TUTTI_ARENA_BYTES=much ");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("TUTTI_ARENA_BYTES=much: expected bytes"));
}

}  // namespace
}  // namespace tutti::cli
