#include "comm/link_measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/harness/world.h"

namespace tutti {
namespace {

std::array<CostModel, 4> MeasuredBy4Ranks(const WorldOptions& options, bool within_nodes) {
  std::array<CostModel, 4> models;
  RunWorld(4, options, [&](Communicator& world) {
    const absl::StatusOr<CostModel> measured = MeasureLinks(world, DefaultCostModel(), within_nodes);
    ASSERT_TRUE(measured.ok()) << measured.status();
    models[world.rank()] = *measured;
  });
  return models;
}

TEST(LinkMeasurementTest, AllRanksGetTheNumbersOfTheLinksThatWereAskedFor) {
  for (const std::string& transport : WorldTransports()) {
    for (const int ranks_per_node : {0, 1, 2}) {
      for (const bool within_nodes : {false, true}) {
        const std::array<CostModel, 4> models =
            MeasuredBy4Ranks({.transport = transport, .ranks_per_node = ranks_per_node}, within_nodes);
        for (const CostModel& model : models) EXPECT_EQ(model, models[0]);
        const CostModel& before = DefaultCostModel();
        EXPECT_EQ(models[0].within_node != before.within_node, within_nodes && ranks_per_node != 1);
        EXPECT_EQ(models[0].between_nodes != before.between_nodes, ranks_per_node > 0);
        for (const LinkModel& link : {models[0].within_node, models[0].between_nodes}) {
          EXPECT_GT(link.latency_s, 0);
          EXPECT_GT(link.bytes_per_s, 0);
        }
      }
    }
  }
}

TEST(LinkMeasurementTest, SaysHowToStartWithAnArenaThatIsTooSmallForIt) {
  RunWorld(2, {.region_bytes = 8 << 20, .ranks_per_node = 1}, [](Communicator& world) {
    const absl::Status status = MeasureLinks(world, DefaultCostModel(), false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), testing::HasSubstr("TUTTI_MEASURE_LINKS=0 on all ranks"));
    EXPECT_THAT(status.message(), testing::HasSubstr("set TUTTI_ARENA_BYTES to a larger size"));
  });
}

}  // namespace
}  // namespace tutti
