#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/algorithm.h"
#include "tutti/print.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// The buckets of all ranks after a run in which element i of rank r was r + i.
std::vector<std::vector<double>> Synchronized(const std::string& strategy_name, int size, std::int64_t count,
                                              const PlanOptions& options) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy(strategy_name);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  std::vector<Plan> plans;
  std::vector<Bytes> out;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan = BuildPlan(*strategy, DType::kF64, count, rank, size, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (!plan.ok()) return {};
    plans.push_back(*std::move(plan));
    std::vector<double> gradient(count);
    for (std::int64_t i = 0; i < count; ++i) gradient[i] = static_cast<double>(rank + i);
    const auto* bytes = reinterpret_cast<const std::byte*>(gradient.data());
    out.emplace_back(bytes, bytes + count * 8);
  }
  SequentialExecutor executor(plans, std::vector<Bytes>(size), out, SequentialExecutor::Order::kFirstToLast);
  EXPECT_EQ(executor.Run(), "");
  std::vector<std::vector<double>> results(size, std::vector<double>(count));
  for (Rank rank = 0; rank < size && count > 0; ++rank) {
    std::memcpy(results[rank].data(), executor.out(rank).data(), count * 8);
  }
  return results;
}

class GradientAllReduce : public ::testing::TestWithParam<int> {};

TEST_P(GradientAllReduce, SumsOrAveragesOverEverySchedule) {
  const int size = GetParam();
  const double ranks_sum = size * (size - 1) / 2.0;
  CollectiveSpec spec{.dtype = DType::kF64, .in_place = true};
  for (const bool mapped : {false, true}) {
    const PlanOptions options{.segment_bytes = 64, .peers_mapped = mapped};
    std::vector<std::string> schedules = {"auto"};
    for (const Schedule* schedule : AllSchedules()) {
      if (schedule->collective == Collective::kAllReduce && schedule->supports(spec, size, options).ok()) {
        schedules.emplace_back(schedule->name);
      }
    }
    for (const std::string& schedule : schedules) {
      for (const std::int64_t count : {0, 1, 37}) {
        const std::string common = absl::StrCat("gradient_allreduce:schedule=", schedule);
        for (const auto& result : Synchronized(common + ",average=false", size, count, options)) {
          for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(result[i], ranks_sum + static_cast<double>(size * i));
        }
        for (const auto& result : Synchronized(common, size, count, options)) {
          for (std::int64_t i = 0; i < count; ++i) {
            EXPECT_EQ(result[i], (ranks_sum + static_cast<double>(size * i)) / size);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientAllReduce, ::testing::Values(1, 2, 3, 4, 5, 8));

// The values of a bf16 bucket need no cast to bf16: the plan is that without a codec.
TEST(GradientAllReduceCodec, ChangesNothingInABucketOfItsType) {
  for (const auto& [codec, dtype] : {std::pair("bf16", DType::kBF16), std::pair("fp16", DType::kF16)}) {
    for (const char* schedule : {"auto", "ring"}) {
      const std::string name = absl::StrCat("gradient_allreduce:schedule=", schedule);
      const absl::StatusOr<Plan> plain = BuildPlan(*ParseStrategy(name), dtype, 1000, 0, 4, {});
      const absl::StatusOr<Plan> cast =
          BuildPlan(*ParseStrategy(absl::StrCat(name, ",codec=", codec)), dtype, 1000, 0, 4, {});
      ASSERT_TRUE(plain.ok() && cast.ok()) << cast.status();
      EXPECT_EQ(ToText(*cast), ToText(*plain)) << codec << ", " << schedule;
    }
  }
}

// Between nodes the sums of bf16 are f32.
TEST(GradientAllReduceCodec, CastsTheSumsOfNodes) {
  const Strategy strategy = *ParseStrategy("gradient_allreduce:hierarchical=true,codec=bf16");
  const absl::StatusOr<Plan> plan = BuildPlan(strategy, DType::kBF16, 1000, 0, 4, {.nodes = {0, 0, 1, 1}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->codecs.empty());
}

TEST(GradientAllReduceCodec, RefusesABucketThatItDoesNotCast) {
  const auto refused = [](const std::string& codec, DType dtype) {
    const absl::Status status =
        BuildPlan(*ParseStrategy("gradient_allreduce:codec=" + codec), dtype, 1000, 0, 4, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("codec=", codec, " casts gradients of f32, and these are ", Name(dtype),
                                       "; use codec=none")));
  };
  refused("fp16", DType::kBF16);
  refused("bf16", DType::kF16);
  refused("bf16", DType::kF64);
  refused("bf16,rounding=stochastic", DType::kBF16);
  refused("fp16,rounding=stochastic", DType::kF16);
}

TEST(GradientAllReduceErrors, NameTheOption) {
  const Strategy direct = *ParseStrategy("gradient_allreduce:schedule=direct");
  const absl::Status status = BuildPlan(direct, DType::kF32, 10, 0, 2, {.peers_mapped = false}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("schedule=direct: "));
  const Strategy stochastic = *ParseStrategy("gradient_allreduce:codec=bf16,rounding=stochastic,schedule=ring");
  const absl::Status refused = BuildPlan(stochastic, DType::kF32, 10, 0, 2, {}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("for rounding=stochastic use schedule=auto"));
}

}  // namespace
}  // namespace tutti
