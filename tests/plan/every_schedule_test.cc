// The plans of every schedule of this build, for worlds of many sizes, keep their promises: they are verified, not run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "tests/harness/calls.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/sweeps.h"
#include "tutti/schedule.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

constexpr std::int64_t kLarge = 65537;

struct Type {
  DType dtype;
  ReduceOp op;
};

std::vector<Type> TypesFor(Collective collective, int size) {
  if (!Reduces(collective)) {
    if (size > 5) return {{DType::kF32, ReduceOp::kSum}, {DType::kF8E5M2, ReduceOp::kSum}};
    return {{DType::kF32, ReduceOp::kSum}, {DType::kC128, ReduceOp::kSum}, {DType::kF8E5M2, ReduceOp::kSum}};
  }
  std::vector<Type> types = {{DType::kF32, ReduceOp::kSum}, {DType::kBF16, ReduceOp::kAvg}};
  if (size > 17) return types;
  types.insert(types.end(), {{DType::kI32, ReduceOp::kAvg},
                             {DType::kF16, ReduceOp::kMax},
                             {DType::kF64, ReduceOp::kProd},
                             {DType::kU8, ReduceOp::kMin}});
  if (size > 5) return types;
  // The verifier treats these types like those above, so few worlds suffice.
  types.insert(types.end(), {{DType::kBool, ReduceOp::kSum},
                             {DType::kU64, ReduceOp::kBitwiseXor},
                             {DType::kC128, ReduceOp::kProd},
                             {DType::kBF16, ReduceOp::kPremulSum}});
  return types;
}

class EveryScheduleTest : public ::testing::TestWithParam<const Schedule*> {
 protected:
  // Returns the number of calls the schedule served.
  int Sweep(int size, std::int64_t count, PlanOptions options) {
    int served = 0;
    for (const std::vector<int>& nodes : NodesFor(*GetParam(), size)) {
      options.nodes = nodes;
      served += SweepOn(size, count, options);
    }
    return served;
  }

 private:
  int SweepOn(int size, std::int64_t count, const PlanOptions& options) {
    const Schedule& schedule = *GetParam();
    int served = 0;
    for (const Type& type : TypesFor(schedule.collective, size)) {
      for (const WorldCall& call : CallsOf(schedule.collective, type.dtype, type.op, count, size)) {
        const absl::StatusOr<std::vector<Plan>> plans = PlansOf(schedule, call, size, options);
        if (absl::IsUnimplemented(plans.status())) {
          // BuildPlan puts "schedule NAME: " before what the schedule says.
          EXPECT_FALSE(absl::EndsWith(plans.status().message(), ": ")) << call.text();
          continue;
        }
        EXPECT_TRUE(plans.ok()) << call.text() << ": " << plans.status();
        if (!plans.ok()) continue;
        ++served;
        const absl::Status status = Verify(*plans);
        EXPECT_TRUE(status.ok()) << (*plans)[0].name << " " << call.text() << ", nodes "
                                 << absl::StrJoin(options.nodes, " ") << ": " << status;
      }
      if (HasFailure()) break;
    }
    return served;
  }
};

TEST_P(EveryScheduleTest, KeepsItsPromisesInEveryWorld) {
  int served = 0;
  for (int size = 1; size <= std::min(17, kMaxRanksSwept); ++size) {
    for (std::int64_t count : std::set<std::int64_t>{0, 1, size - 1, size, size + 1, 97, kLarge}) {
      served += Sweep(size, count, WithNative({.peers_mapped = true}));
      ASSERT_FALSE(HasFailure()) << "world of " << size << ", count " << count;
    }
  }
  EXPECT_GT(served, 0) << "supports no call at all";
}

TEST_P(EveryScheduleTest, KeepsItsPromisesInLargeWorlds) {
  if (kShortSweeps) GTEST_SKIP() << "short sweeps visit small worlds only";
  int served = 0;
  for (int size : {32, 64}) {
    for (std::int64_t count : {0, 1, size + 1, 97}) {
      served += Sweep(size, count, WithNative({.peers_mapped = true}));
      ASSERT_FALSE(HasFailure()) << "world of " << size << ", count " << count;
    }
  }
  EXPECT_GT(served, 0);
}

TEST_P(EveryScheduleTest, KeepsItsPromisesCutIntoSegments) {
  int served = 0;
  for (int size : SweptWorlds({1, 2, 3, 4, 7, 8})) {
    for (std::int64_t segment : {8, 24, 64}) {
      served += Sweep(size, 37, WithNative({.segment_bytes = segment, .peers_mapped = true}));
      ASSERT_FALSE(HasFailure()) << "world of " << size << ", segment_bytes " << segment;
    }
  }
  EXPECT_GT(served, 0);
}

// Multiples of the longest segment that options can name would overflow.
TEST_P(EveryScheduleTest, TakesSegmentsLongerThanAnyBuffer) {
  const std::int64_t uncut = std::numeric_limits<std::int64_t>::max();
  int served = 0;
  for (int size : {2, 3, 4}) served += Sweep(size, 37, WithNative({.segment_bytes = uncut, .peers_mapped = true}));
  for (int size : {2, 3}) served += Sweep(size, 37, {.segment_bytes = uncut, .peers_mapped = false});
  EXPECT_GT(served, 0);
}

// A schedule of mapped memory or of native collectives serves none of these calls; every refusal has a text.
TEST_P(EveryScheduleTest, ServesMessagesAloneOrSaysWhyNot) {
  for (int size : {1, 2, 5}) Sweep(size, 11, {.peers_mapped = false});
}

std::string NameOf(const ::testing::TestParamInfo<const Schedule*>& schedule) {
  return std::string(Name(schedule.param->collective)) + "_" + std::string(schedule.param->name);
}

INSTANTIATE_TEST_SUITE_P(All, EveryScheduleTest, ::testing::ValuesIn(AllSchedules().begin(), AllSchedules().end()),
                         NameOf);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryScheduleTest);

}  // namespace
}  // namespace tutti
