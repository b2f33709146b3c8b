// Faults of native steps that the verifier must name, each in the smallest plan that has the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/native_machine.h"
#include "tutti/algorithm.h"
#include "tutti/print.h"
#include "tutti/schedule.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Author = std::function<void(PlanBuilder&)>;

std::vector<Plan> Plans(const CollectiveSpec& spec, int size, const Author& author,
                        const PlanOptions& options = WithNative({.peers_mapped = true})) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder b("test", spec, rank, size, options);
    author(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plans.push_back(*std::move(plan));
  }
  return plans;
}

std::string ErrorOf(const std::vector<Plan>& plans) { return std::string(Verify(plans).message()); }

std::string ErrorOf(const CollectiveSpec& spec, int size, const Author& author) {
  return ErrorOf(Plans(spec, size, author));
}

// Makes the last step of `plan` depend on the step before it alone.
void FollowTheOneBefore(Plan& plan) {
  plan.steps.back().first_dep = static_cast<std::uint32_t>(plan.deps.size());
  plan.steps.back().num_deps = 1;
  plan.deps.push_back(static_cast<StepId>(plan.steps.size() - 2));
}

void Meet(PlanBuilder& b) {
  b.Signal();
  b.WaitAll();
}

constexpr CollectiveSpec Sum(std::int64_t count) { return {.collective = Collective::kAllReduce, .count = count}; }

TEST(VerifyNativeTest, AcceptsAllReduceByHand) {
  EXPECT_EQ(ErrorOf(Sum(5), 4, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); }), "");
  // Halves of the buffer, one after the other.
  EXPECT_EQ(ErrorOf(Sum(8), 3,
                    [](PlanBuilder& b) {
                      for (int half : {0, 1}) {
                        b.Native(Sum(4), b.in().Elements(4 * half, 4), b.out().Elements(4 * half, 4));
                      }
                    }),
            "");
}

TEST(VerifyNativeTest, AStepMayBeMissingOnNoRank) {
  EXPECT_THAT(
      ErrorOf(Sum(4), 3,
              [](PlanBuilder& b) { b.rank() == 1 ? b.Copy(b.out(), b.in()) : b.Native(b.spec(), b.in(), b.out()); }),
      HasSubstr("rank 0 step 0 (native out[0,16) f32 = all_reduce sum(in[0,16) f32) among all #0): rank 1, "
                "which is in the group, has no native step #0 of this group"));
}

TEST(VerifyNativeTest, AllRanksMustMakeOneCall) {
  const auto error_where_rank_2_has = [](const CollectiveSpec& other) {
    return ErrorOf(Sum(4), 3, [&](PlanBuilder& b) {
      const CollectiveSpec part = b.rank() == 2 ? other : Sum(4);
      const Ref in = b.Scratch(part.dtype, InputCount(part, b.rank(), b.size()));
      b.Native(part, in, b.Scratch(part.dtype, OutputCount(part, b.rank(), b.size())));
    });
  };
  EXPECT_THAT(error_where_rank_2_has({.op = ReduceOp::kProd, .count = 4}),
              AllOf(HasSubstr("rank 2 step 0 (native scratch[64,80) f32 = all_reduce prod"),
                    HasSubstr("differs in op from rank 0 step 0")));
  EXPECT_THAT(error_where_rank_2_has(Sum(3)), HasSubstr("differs in count from rank 0 step 0"));
  EXPECT_THAT(error_where_rank_2_has({.dtype = DType::kI32, .count = 4}), HasSubstr("differs in dtype from rank 0"));
  EXPECT_THAT(error_where_rank_2_has({.collective = Collective::kReduce, .count = 4, .root = 2}),
              HasSubstr("differs in collective from rank 0 step 0"));
  const CollectiveSpec broadcast{.collective = Collective::kBroadcast, .count = 4};
  EXPECT_THAT(ErrorOf(broadcast, 3,
                      [](PlanBuilder& b) {
                        CollectiveSpec part = b.spec();
                        part.root = b.rank() == 2 ? 2 : 0;
                        const Ref in = b.Scratch(DType::kF32, b.rank() == part.root ? 4 : 0);
                        b.Native(part, in, b.out());
                      }),
              HasSubstr("rank 2 step 0 (native out[0,16) f32 = broadcast(scratch[0,16) f32), root 2 among all #0) "
                        "differs in root from rank 0 step 0"));
}

// Two calls of different collectives, and two that differ only in their memory, in another order on one rank.
TEST(VerifyNativeTest, StepsOfAGroupMustHaveOneOrder) {
  EXPECT_THAT(ErrorOf(Sum(4), 2,
                      [](PlanBuilder& b) {
                        const Ref sum = b.Scratch(DType::kF32, 4);
                        const CollectiveSpec gather{.collective = Collective::kAllGather, .count = 2};
                        const auto add = [&] { b.Native(Sum(4), b.in(), sum); };
                        const auto collect = [&] { b.Native(gather, sum.Elements(2 * b.rank(), 2), b.out()); };
                        b.Copy(sum, b.in());
                        if (b.rank() == 0) add();
                        collect();
                        if (b.rank() == 1) add();
                      }),
              AllOf(HasSubstr("rank 1 step 1 (native out[0,16) f32 = all_gather"),
                    HasSubstr("differs in collective from rank 0 step 1 (native scratch[0,16) f32 = all_reduce")));
  EXPECT_THAT(ErrorOf(Sum(8), 2,
                      [](PlanBuilder& b) {
                        for (const int i : {0, 1}) {
                          const int half = b.rank() == 0 ? i : 1 - i;
                          b.Native(Sum(4), b.in().Elements(4 * half, 4), b.out().Elements(4 * half, 4));
                        }
                      }),
              HasSubstr("rank 0 ends with out[0,32) f32: element 0 of sum of element 0 of all 2 ranks is expected, "
                        "found native sum(in@0[0], in@1[4])"));
}

// Ranks of two groups meet in different orders: rank 0 waits for rank 1 in one group, rank 1 for rank 0 in the other.
TEST(VerifyNativeTest, GroupsThatMeetInDifferentOrdersAreADeadlock) {
  const std::string error = ErrorOf(Sum(4), 3, [](PlanBuilder& b) {
    const auto native = [&](std::vector<Rank> group) {
      b.WithinGroup(group, Sum(4), b.in(), b.Scratch(DType::kF32, 4),
                    [](PlanBuilder& part) { part.Native(part.spec(), part.in(), part.out()); });
    };
    if (b.rank() == 0) native({0, 1});
    native({0, 1, 2});
    if (b.rank() == 1) native({0, 1});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("deadlock: each waits for the next: "), HasSubstr("among 0 1 #0"),
                           HasSubstr("among all #0"), HasSubstr("rank 0 step"), HasSubstr("rank 1 step")));
}

TEST(VerifyNativeTest, AGroupMustHaveAllItsRanks) {
  std::vector<Plan> plans = Plans(Sum(4), 4, [](PlanBuilder& b) {
    const std::vector<Rank> group = b.rank() == 3 ? std::vector<Rank>{3} : std::vector<Rank>{2, 0, 1};
    b.WithinGroup(group, Sum(4), b.in(), b.Scratch(DType::kF32, 4), [](PlanBuilder& part) {
      if (part.size() > 1) part.Native(part.spec(), part.in(), part.out());
    });
  });
  plans[1].groups[0] = {2, 1};
  EXPECT_THAT(ErrorOf(plans),
              AllOf(HasSubstr("rank 0 step 0 (native "), HasSubstr("among 2 0 1 #0): rank 1, which is in")));
  plans[1].groups[0] = {2, 0};
  EXPECT_THAT(ErrorOf(plans), HasSubstr("group 1 must contain rank 1, the rank of the step"));
  plans[1].groups[0] = {2, 1, 1};
  EXPECT_THAT(ErrorOf(plans),
              HasSubstr("rank 1 step 0 (native scratch[0,16) f32 = all_reduce sum(in[0,16) f32) among 2 "
                        "1 1 #0): group 1 has rank 1 twice"));
  plans[1].groups[0] = {1, 4};
  EXPECT_THAT(ErrorOf(plans), HasSubstr("group 1 has rank 4, which does not exist"));
  plans[1].groups[0] = {1};
  EXPECT_THAT(ErrorOf(plans), HasSubstr("must have at least 2 ranks"));
  plans[1].steps[0].group = 2;
  EXPECT_THAT(ErrorOf(plans), HasSubstr("among ? #0): group 2 must be in 0…1"));
}

TEST(VerifyNativeTest, ResultsMustBeWaitedFor) {
  std::vector<Plan> plans = Plans(Sum(4), 2, [](PlanBuilder& b) {
    const Ref sum = b.Scratch(DType::kF32, 4);
    b.Native(Sum(4), b.in(), sum);
    b.Copy(b.out(), sum);
  });
  ASSERT_EQ(ErrorOf(plans), "");
  plans[1].steps[1].num_deps = 0;
  EXPECT_THAT(ErrorOf(plans), AllOf(HasSubstr("race: "), HasSubstr("rank 1 step 0 (native "),
                                    HasSubstr("rank 1 step 1 (copy "), HasSubstr("nothing orders them")));
}

TEST(VerifyNativeTest, StepsOfARankMustKeepTheirOrder) {
  std::vector<Plan> plans = Plans(Sum(8), 2, [](PlanBuilder& b) {
    for (int half : {0, 1}) b.Native(Sum(4), b.in().Elements(4 * half, 4), b.out().Elements(4 * half, 4));
  });
  ASSERT_EQ(plans[1].steps[1].num_deps, 1u);
  plans[1].steps[1].num_deps = 0;
  EXPECT_THAT(ErrorOf(plans), AllOf(HasSubstr("race: rank 1 step 1 (native "), HasSubstr("may overtake rank 1 step 0"),
                                    HasSubstr("the native steps of a rank must keep their order")));
}

// A native collective orders what came before it on the ranks that give, not what their own steps write: rank 1 may
// have its result while rank 0 still writes its own.
TEST(VerifyNativeTest, AResultElsewhereIsNotThereYet) {
  std::vector<Plan> sums = Plans(Sum(4), 2, [](PlanBuilder& b) {
    const Ref sum = b.Scratch(DType::kF32, 4);
    Meet(b);
    b.Native(Sum(4), b.in(), sum);
    b.Copy(b.out(), b.rank() == 0 ? sum : sum.At(0));
  });
  FollowTheOneBefore(sums[1]);
  EXPECT_THAT(ErrorOf(sums), AllOf(HasSubstr("race: "), HasSubstr("rank 0 step 2 (native "),
                                   HasSubstr("rank 1 step 3 (copy "), HasSubstr("nothing orders them")));
  // What rank 0 has written before its native step is there after that of rank 1.
  std::vector<Plan> plans = Plans({.collective = Collective::kBroadcast, .count = 4}, 2, [](PlanBuilder& b) {
    const Ref copy = b.Scratch(DType::kF32, 4);
    const bool root = b.rank() == 0;
    Meet(b);
    if (root) b.Copy(copy, b.in());
    b.Native({.collective = Collective::kBroadcast, .count = 2}, copy.Elements(0, root ? 2 : 0),
             b.out().Elements(0, 2));
    b.Copy(b.out().Elements(2, 2), root ? copy.Elements(2, 2) : copy.Elements(2, 2).At(0));
  });
  EXPECT_THAT(ErrorOf(plans), AllOf(HasSubstr("race: "), HasSubstr("rank 1 step 3 (copy ")));
  FollowTheOneBefore(plans[1]);
  EXPECT_EQ(ErrorOf(plans), "");
}

TEST(VerifyNativeTest, MemoryMustBeWrittenBeforeItIsGiven) {
  EXPECT_THAT(
      ErrorOf(Sum(4), 3,
              [](PlanBuilder& b) { b.Native(Sum(4), b.rank() == 2 ? b.Scratch(DType::kF32, 4) : b.in(), b.out()); }),
      HasSubstr("rank 2 step 0 (native out[0,16) f32 = all_reduce sum(scratch[0,16) f32) among all #0): "
                "scratch[0,16) f32 is not initialised"));
}

// A native collective moves blocks of bytes that messages of a codec may not fill; nothing may use what they do not
// fill.
TEST(VerifyNativeTest, UninitialisedBytesMayBeMovedButNotUsed) {
  const auto error = [](DType dtype, std::int64_t used) {
    return ErrorOf({.collective = Collective::kAllGather, .dtype = dtype, .count = 4}, 2, [&](PlanBuilder& b) {
      const Ref slots = b.Scratch(dtype, 16);
      const Ref mine = slots.Elements(8 * b.rank(), 8);
      b.Copy(mine.Elements(0, 4), b.in());
      b.Native({.collective = Collective::kAllGather, .dtype = dtype, .count = 8}, mine, slots);
      for (int i : {0, 1}) b.Copy(b.out().Elements(4 * i, 4), slots.Elements(8 * i + used, 4));
    });
  };
  EXPECT_EQ(error(DType::kU8, 0), "");
  EXPECT_THAT(error(DType::kU8, 1), HasSubstr("scratch[1,5) u8 is not initialised"));
  EXPECT_THAT(error(DType::kI32, 0),
              HasSubstr("rank 0 step 1 (native scratch[0,64) i32 = all_gather(scratch[0,32) i32) "
                        "among all #0): scratch[0,32) i32 is not initialised"));
}

// A 16-bit native sum is rounded: nothing more may be added to it; a minimum is not.
TEST(VerifyNativeTest, NothingIsAddedToARoundedSum) {
  const auto error = [](ReduceOp op) {
    return ErrorOf({.dtype = DType::kBF16, .op = op, .count = 4}, 4, [&](PlanBuilder& b) {
      const Ref pair = b.Scratch(DType::kBF16, 4);
      const Rank first = b.rank() / 2 * 2;
      const CollectiveSpec part{.dtype = DType::kBF16, .op = op, .count = 4};
      const auto native = [](PlanBuilder& inner) { inner.Native(inner.spec(), inner.in(), inner.out()); };
      b.WithinGroup({first, first + 1}, part, b.in(), pair, native);
      b.WithinGroup({b.rank() % 2, b.rank() % 2 + 2}, part, pair, b.out(), native);
    });
  };
  EXPECT_THAT(error(ReduceOp::kSum), HasSubstr("native sum(in@0[0], in@1[0]), which is rounded already"));
  EXPECT_THAT(error(ReduceOp::kMax), HasSubstr("replicas differ: out element 0 of rank 0"));
}

// The same sum made twice may differ in its bits, because a transport chooses its order each time.
TEST(VerifyNativeTest, TwoSumsOfTheSameInputsAreNotOneSum) {
  EXPECT_THAT(ErrorOf(Sum(4), 2,
                      [](PlanBuilder& b) {
                        const Ref first = b.Scratch(DType::kF32, 4);
                        const Ref second = b.Scratch(DType::kF32, 4);
                        b.Native(Sum(4), b.in(), first);
                        b.Native(Sum(4), b.in(), second);
                        b.Copy(b.out(), b.rank() == 0 ? first : second);
                      }),
              HasSubstr("replicas differ: out element 0 of rank 0 is native sum(in@0[0], in@1[0]), of rank 1 native"));
}

TEST(VerifyNativeTest, FieldsThatMakeNoSense) {
  const auto error = [](const std::function<void(Step&)>& change) {
    std::vector<Plan> plans = Plans(Sum(4), 2, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); });
    change(plans[1].steps[0]);
    return ErrorOf(plans);
  };
  EXPECT_THAT(error([](Step& s) { s.collective = Collective::kBarrier; }), HasSubstr("barrier has no native form"));
  EXPECT_THAT(error([](Step& s) { s.peer = 0; }), HasSubstr("peer 0 must be -1: there is no root"));
  EXPECT_THAT(error([](Step& s) { s.divisor = 2; }), HasSubstr("divisor 2 must be 1"));
  EXPECT_THAT(error([](Step& s) { s.op = ReduceOp::kAvg; }), HasSubstr("divisor 1 must be 2"));
  EXPECT_THAT(error([](Step& s) { s.op = ReduceOp::kPremulSum; }), HasSubstr("op premul_sum"));
  EXPECT_THAT(error([](Step& s) { s.ordinal = 1; }), HasSubstr("ordinal 1 of a native step must be 0"));
  EXPECT_THAT(error([](Step& s) { s.codec = 1; }), HasSubstr("of a native step must be 0"));
  EXPECT_THAT(error([](Step& s) { s.num_srcs = 0; }), HasSubstr("srcs[0] has 0 and dsts[0] 4 elements, must have"));
  EXPECT_THAT(error([](Step& s) { s.num_srcs = s.num_dsts = 0; }), HasSubstr("not 0 of both"));
  EXPECT_THAT(error([](Step& s) {
                s.kind = StepKind::kCopy;
                s.collective = Collective::kReduce;
              }),
              HasSubstr("a step of kind copy does not use collective"));
}

TEST(VerifyNativeTest, ANativeStepWorksInItsOwnMemoryAlone) {
  std::vector<Plan> plans = Plans(Sum(4), 2, [](PlanBuilder& b) { b.Native(b.spec(), b.in(), b.out()); });
  plans[0].refs[1].owner = 1;
  EXPECT_THAT(ErrorOf(plans), HasSubstr("in@1[0,16) f32: a native step works in the memory of its own rank alone"));
}

}  // namespace
}  // namespace tutti
