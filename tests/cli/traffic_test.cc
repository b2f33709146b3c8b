#include "bindings/cli/traffic.h"

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

absl::StatusOr<Traffic> Make(const std::string& name, std::int64_t bytes, Rank rank = 0, int size = 4) {
  return MakeBenchTraffic(name, {}, bytes, rank, size);
}

// The factors of nccl-tests' doc/PERFORMANCE.md, for 4 ranks.
TEST(TrafficTest, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(Make("all_reduce", 1024)->bus_factor(), 1.5);
  for (const char* name : {"reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"}) {
    EXPECT_DOUBLE_EQ(Make(name, 1024)->bus_factor(), 0.75) << name;
  }
  for (const char* name : {"broadcast", "reduce", "send_recv"}) {
    EXPECT_DOUBLE_EQ(Make(name, 1024)->bus_factor(), 1) << name;
  }
}

TEST(TrafficTest, SizesAreThoseOfTheLargerBuffer) {
  for (const std::string& name : BenchNames()) {
    const absl::StatusOr<Traffic> traffic = Make(name, 1024);
    ASSERT_TRUE(traffic.ok()) << traffic.status();
    EXPECT_EQ(traffic->bytes(), name == "barrier" ? 0 : 1024) << name;
  }
  EXPECT_EQ(Make("all_gather", 1024)->count, 64);
  EXPECT_EQ(Make("all_reduce", 1024)->count, 256);
}

TEST(TrafficTest, SmallSizesHaveAnElementPerBlock) {
  EXPECT_EQ(Make("all_gather", 4)->bytes(), 16);
  EXPECT_EQ(Make("all_reduce", 1)->bytes(), 4);
  EXPECT_EQ(Make("all_gather", 0)->bytes(), 0);
}

TEST(TrafficTest, ExpectedResultsCoverTheOutput) {
  for (const std::string& name : BenchNames()) {
    for (Rank rank = 0; rank < 3; ++rank) {
      const absl::StatusOr<Traffic> traffic = Make(name, 1200, rank, 3);
      ASSERT_TRUE(traffic.ok()) << traffic.status();
      std::int64_t covered = 0;
      for (const Piece& piece : traffic->expected()) {
        EXPECT_EQ(piece.at, covered);
        covered += piece.count;
      }
      EXPECT_EQ(covered, traffic->output_count()) << name << " of rank " << rank;
    }
  }
}

TEST(TrafficTest, InPlaceBlocksLieWhereTheCollectiveWantsThem) {
  EXPECT_EQ(Make("all_gather", 1024, 2)->in_place_input(), 128);
  EXPECT_EQ(Make("all_gather", 1024, 2)->in_place_output(), 0);
  EXPECT_EQ(Make("reduce_scatter", 1024, 2)->in_place_output(), 128);
  EXPECT_EQ(Make("reduce_scatter", 1024, 2)->in_place_input(), 0);
  EXPECT_EQ(Make("gather", 1024, 2)->in_place_input(), 0);
}

TEST(TrafficTest, RefusesUnknownNames) {
  EXPECT_EQ(ParseBenchName("allreduce").status().message(), "no collective 'allreduce'; did you mean all_reduce?");
}

}  // namespace
}  // namespace tutti::cli
