#include "bindings/cli/advise/codec_speeds.h"

#include <set>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

TEST(CodecSpeedsTest, AreThoseThatWereMeasuredForEachDirection) {
  const nlohmann::json measured = nlohmann::json::parse(MeasuredCodecs());
  const absl::StatusOr<Plan> plan =
      BuildPlan(*ParseStrategy("bytegrad"), DType::kF32, /*count=*/1 << 20, /*rank=*/0, /*size=*/4, PlanOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<std::string> directions;
  for (const Step& step : plan->steps) {
    if (step.kind != StepKind::kEncode && step.kind != StepKind::kDecode) continue;
    const bool encodes = step.kind == StepKind::kEncode;
    const std::string direction = encodes ? "Encode" : step.accumulate ? "Accumulate" : "Decode";
    const double gb_s = measured[direction + "/uint8_block:block=1024/16777216"]["gb_s"];
    const Ref elements = encodes ? plan->srcs(step)[0] : plan->dsts(step)[0];
    EXPECT_DOUBLE_EQ(*CodecSeconds(*plan, step), static_cast<double>(elements.bytes) / 1e9 / gb_s) << direction;
    directions.insert(direction);
  }
  EXPECT_EQ(directions, (std::set<std::string>{"Accumulate", "Decode", "Encode"}));
}

}  // namespace
}  // namespace tutti::cli
