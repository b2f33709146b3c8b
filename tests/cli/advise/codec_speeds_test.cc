#include "bindings/cli/advise/codec_speeds.h"

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

// Memory so fast that arithmetic decides, of the default model, and so slow that memory decides.
constexpr double kCopyBytesPerS[] = {1e15, 40e9, 1e6};

TEST(CodecSpeedsTest, AreThoseOfTheArithmeticOrOfMemoryWhicheverIsSlower) {
  const nlohmann::json measured = nlohmann::json::parse(MeasuredCodecs());
  const absl::StatusOr<Plan> plan =
      BuildPlan(*ParseStrategy("bytegrad"), DType::kF32, /*count=*/1 << 20, /*rank=*/0, /*size=*/4, PlanOptions());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<std::string> directions;
  for (const Step& step : plan->steps) {
    if (step.kind != StepKind::kEncode && step.kind != StepKind::kDecode) continue;
    const bool encodes = step.kind == StepKind::kEncode;
    const std::string direction = encodes ? "Encode" : step.accumulate ? "Accumulate" : "Decode";
    const std::string name = direction + "/uint8_block:block=1024/";
    const Ref elements = encodes ? plan->srcs(step)[0] : plan->dsts(step)[0];
    const auto bytes = static_cast<double>(elements.bytes);
    const double arithmetic_s = bytes / 1e9 / measured[name + "16384"]["gb_s"].get<double>();
    for (const double copy_bytes_per_s : kCopyBytesPerS) {
      const double memcpy_s = bytes * 2 / copy_bytes_per_s;  // which reads the bytes and writes them
      const double memory_s = memcpy_s / measured[name + "16777216"]["memcpy"].get<double>();
      EXPECT_DOUBLE_EQ(*CodecSeconds(*plan, step, copy_bytes_per_s), std::max(arithmetic_s, memory_s)) << direction;
    }
    directions.insert(direction);
  }
  EXPECT_EQ(directions, (std::set<std::string>{"Accumulate", "Decode", "Encode"}));
}

}  // namespace
}  // namespace tutti::cli
