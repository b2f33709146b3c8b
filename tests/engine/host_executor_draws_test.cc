// Stochastic rounding uses other random numbers for every draw, equal ones for every rank's copy of a result, and the
// same ones again when a program is run again.
#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/world.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

using Results = std::vector<std::vector<float>>;

// The results of two ranks after each of three runs with different draws.
std::vector<Results> ResultsOfRuns() {
  constexpr std::int64_t kCount = 5000;
  std::vector<Results> results(2, Results(3));
  RunWorld(2, [&](Communicator& comm) {
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    auto* const values = static_cast<float*>(static_cast<void*>(buffer->data()));
    absl::StatusOr<BoundPlan> bound =
        comm.Bind(*ParseStrategy("bytegrad:rounding=stochastic"), DType::kF32, kCount, 0, {.out = buffer->data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    for (std::uint64_t run = 0; run < 3; ++run) {
      for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i % 1000) * 0.001f;
      ASSERT_EQ(bound->Start({.caller_drives = true, .draw = run}).Wait(), absl::OkStatus());
      results[comm.rank()][run].assign(values, values + kCount);
    }
  });
  return results;
}

TEST(ExecutorDrawsTest, DifferBetweenRunsOnly) {
  const std::vector<Results> first = ResultsOfRuns();
  EXPECT_EQ(first[0], first[1]);
  EXPECT_NE(first[0][0], first[0][1]);
  EXPECT_NE(first[0][1], first[0][2]);
  EXPECT_EQ(ResultsOfRuns(), first);
}

}  // namespace
}  // namespace tutti
