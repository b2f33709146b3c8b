// Faults that the verifier must name, each in the smallest plan that has the fault.
#include "tutti/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/plan/hand_written_plans.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Every rank sends its whole input to every rank and reduces in rank order.
void AllToAllThenReduce(PlanBuilder& b, ReduceOp op) {
  std::vector<Ref> srcs(b.size(), b.in());
  for (Rank peer = 0; peer < b.size(); ++peer) {
    if (peer == b.rank()) continue;
    srcs[peer] = b.Scratch(b.in().dtype, b.in().count());
    b.Send(peer, b.in());
    b.Recv(peer, srcs[peer]);
  }
  b.Reduce(std::vector<Ref>{b.out()}, srcs, op);
}

TEST(VerifyTest, AcceptsAllReduceByHand) {
  for (bool in_place : {false, true}) {
    EXPECT_EQ(
        ErrorOf({.count = 5, .in_place = in_place}, 4, [](PlanBuilder& b) { AllToAllThenReduce(b, b.spec().op); }), "");
  }
}

TEST(VerifyTest, TellsHowFarItHasCome) {
  const std::vector<Plan> plans =
      Plans({.count = 5}, 40, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); });
  std::vector<std::string> properties;
  double last = 0;
  int news = 0;
  const absl::Status verified = Verify(plans, [&](absl::string_view property, double part) {
    if (properties.empty() || properties.back() != property) {
      properties.emplace_back(property);
      last = 0;
    }
    EXPECT_GE(part, last) << property;
    EXPECT_LE(part, 1) << property;
    last = part;
    ++news;
  });
  EXPECT_TRUE(verified.ok()) << verified;
  EXPECT_THAT(properties, testing::ElementsAre("form", "matching and progress", "races", "values"));
  EXPECT_GT(last, 0.5);
  EXPECT_GT(news, 6);
}

TEST(VerifyTest, PlansMustBeOnePerRankOfOneCall) {
  EXPECT_EQ(Verify({}).code(), absl::StatusCode::kInvalidArgument);
  std::vector<Plan> plans = Plans({.count = 1}, 2, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); });
  EXPECT_THAT(std::string(Verify({plans.data(), 1}).message()), HasSubstr("one per rank"));
  plans[1].spec.op = ReduceOp::kMax;
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("spec of rank 1 differs from that of rank 0 in op"));
}

TEST(VerifyTest, AFaultNamesTheScheduleBehindIt) {
  const CollectiveSpec spec{.collective = Collective::kBroadcast, .count = 4};
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        b.WriteBy("broadcast:mine", [](PlanBuilder& part) {
                          if (part.rank() == 1) part.Recv(0, part.out());
                        });
                      }),
              HasSubstr("rank 1 step 0 (recv out[0,16) f32 from 0 #0) (written by schedule broadcast:mine): no rank "));
  EXPECT_THAT(ErrorOf(spec, 2, [](PlanBuilder& b) { b.WriteBy("broadcast:mine", [](PlanBuilder&) {}); }),
              testing::EndsWith(" (in parts written by schedule broadcast:mine)"));
}

TEST(VerifyTest, MessagesMustMeet) {
  const CollectiveSpec spec{.collective = Collective::kBroadcast, .count = 4};
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        if (b.rank() == 0) b.Send(1, b.in());
                      }),
              HasSubstr("rank 0 step 0 (send in[0,16) f32 to 1 #0): no step receives this message (a range of zero "
                        "elements makes no message)"));
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        if (b.rank() == 1) b.Recv(0, b.out());
                      }),
              HasSubstr("rank 1 step 0 (recv out[0,16) f32 from 0 #0): no rank sends this message (a range of zero "
                        "elements makes no message)"));
  EXPECT_THAT(
      ErrorOf(spec, 2, [](PlanBuilder& b) { b.rank() == 0 ? b.Send(1, b.in().Elements(0, 3)) : b.Recv(0, b.out()); }),
      HasSubstr("receives 16 bytes of f32, but rank 0 step 0"));
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        if (b.rank() == 1) b.Wait(0);
                      }),
              HasSubstr("rank 0 makes no signal with ordinal 1"));
}

TEST(VerifyTest, ASendMayNeedItsRecvToProgress) {
  EXPECT_THAT(ErrorOf({.count = 4, .in_place = true}, 2,
                      [](PlanBuilder& b) {
                        b.Send(1 - b.rank(), b.in());
                        b.Recv(1 - b.rank(), b.out());
                      }),
              HasSubstr("deadlock: each waits for the next: rank 0 step"));
}

TEST(VerifyTest, WaitingInACircleIsADeadlock) {
  EXPECT_THAT(ErrorOf({.collective = Collective::kBarrier}, 3,
                      [](PlanBuilder& b) {
                        b.Wait((b.rank() + 1) % b.size());
                        b.Scratch(DType::kU8, 1);
                        b.Send((b.rank() + 2) % b.size(), {.space = Space::kScratch, .dtype = DType::kU8, .bytes = 1});
                        b.Recv((b.rank() + 1) % b.size(), {.space = Space::kScratch, .dtype = DType::kU8, .bytes = 1});
                        b.Signal();
                      }),
              HasSubstr("deadlock"));
}

TEST(VerifyTest, DroppedDependencyIsARace) {
  std::vector<Plan> plans = Plans({.count = 4}, 2, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); });
  ASSERT_EQ(plans[1].steps.back().num_deps, 1u);
  plans[1].steps.back().num_deps = 0;
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("race: rank 1 step 1 (recv"));
}

TEST(VerifyTest, PeersMustHaveBegunAndMustNotHaveEnded) {
  const CollectiveSpec spec{.collective = Collective::kBroadcast, .count = 4};
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        if (b.rank() == 0) b.Copy(b.out().At(1), b.in());
                      }),
              HasSubstr("depends on no wait of rank 0 for rank 1, in which rank 0 learns where that memory lies"));
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        b.Signal();
                        b.WaitAll();
                        if (b.rank() == 0) b.Copy(b.out().At(1), b.in());
                      }),
              HasSubstr("nothing makes rank 1 wait for the step before the run of rank 1 ends"));
}

// Rank 0 has begun when rank 1 signals, but has not told rank 2 where its scratch lies.
TEST(VerifyTest, ARankMeetsThePeersWhoseMemoryItTouchesItself) {
  const auto chain = [](bool meets) {
    return [meets](PlanBuilder& b) {
      const Ref copy = b.Scratch(DType::kF32, 4);
      if (b.rank() == 0) b.Copy(copy, b.in());
      if (b.rank() == 2 && meets) b.Wait(0);
      if (b.rank() > 0) b.Wait(b.rank() - 1);
      b.Copy(b.out(), b.rank() == 0 ? b.in() : copy.At(0));
      if (b.rank() < 2) b.Signal();
    };
  };
  const CollectiveSpec spec{.collective = Collective::kBroadcast, .count = 4};
  EXPECT_EQ(ErrorOf(spec, 3, chain(true)), "");
  EXPECT_THAT(ErrorOf(spec, 3, chain(false)),
              HasSubstr("rank 2 step 1 (copy out[0,16) f32 = scratch@0[0,16) f32) touches scratch@0[0,16) f32, but "
                        "depends on no wait of rank 2 for rank 0, in which rank 2 learns where that memory lies"));
}

// Rank 0 sends 1 and 2 elements, rank 1 3 and 4: each rank reads the other's block where it lies.
void ReadBlocks(PlanBuilder& b, bool wrong_block, bool meets_again) {
  const Rank other = 1 - b.rank();
  b.Signal();
  b.WaitAll();
  const std::int64_t before = b.rank() == 0 ? b.spec().recv_counts[0] : 0;
  const std::int64_t own = b.rank() == 0 ? 0 : b.spec().recv_counts[0];
  const std::int64_t own_in = b.rank() == 0 ? 0 : b.spec().send_counts[0];
  const std::int64_t count = b.spec().recv_counts[static_cast<std::size_t>(other)];
  Ref source = b.BlockFrom(other);
  if (wrong_block) source = Ref{.space = Space::kIn, .bytes = source.bytes}.At(other);
  b.Copy(b.out().Elements(before, count), source);
  b.Copy(b.out().Elements(own, b.spec().recv_counts[static_cast<std::size_t>(b.rank())]),
         b.in().Elements(own_in, b.spec().send_counts[static_cast<std::size_t>(b.rank())]));
  if (meets_again) {
    b.Signal();
    b.WaitAll();
  }
}

std::vector<Plan> PlansThatReadBlocks(bool wrong_block, bool meets_again) {
  std::vector<Plan> plans;
  const std::vector<std::int64_t> sent[] = {{1, 2}, {3, 4}};
  for (Rank rank : {0, 1}) {
    CollectiveSpec spec{.collective = Collective::kAllToAllV, .send_counts = sent[rank]};
    spec.recv_counts = {sent[0][static_cast<std::size_t>(rank)], sent[1][static_cast<std::size_t>(rank)]};
    PlanBuilder b("test", spec, rank, 2, {.peers_mapped = true});
    ReadBlocks(b, wrong_block, meets_again);
    plans.push_back(*std::move(b).Build());
  }
  return plans;
}

TEST(VerifyTest, BlocksOfAnAllToAllVLieWhereTheCountsOfTheirSenderSay) {
  EXPECT_EQ(Verify(PlansThatReadBlocks(false, true)), absl::OkStatus());
  EXPECT_THAT(std::string(Verify(PlansThatReadBlocks(true, true)).message()), HasSubstr("found in@0[0]"));
  EXPECT_THAT(std::string(Verify(PlansThatReadBlocks(false, false)).message()),
              HasSubstr("wait for the step before the run of rank"));
  std::vector<Plan> beyond = PlansThatReadBlocks(false, true);
  for (Ref& ref : beyond[1].refs) {
    if (ref.space == Space::kBlock) ref.offset = 4;
  }
  EXPECT_THAT(std::string(Verify(beyond).message()), HasSubstr("lie in the 8 bytes of its space"));
  std::vector<Plan> own = PlansThatReadBlocks(false, true);
  for (Ref& ref : own[1].refs) {
    if (ref.space == Space::kBlock) ref.owner = kSelf;
  }
  EXPECT_THAT(std::string(Verify(own).message()), HasSubstr("only in the memory of peers"));
}

TEST(VerifyTest, CountsOfAnAllToAllVMustFitBetweenAllRanks) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    CollectiveSpec spec{.collective = Collective::kAllToAllV, .send_counts = {1, 1, 1}, .recv_counts = {1, 1, 1}};
    if (rank == 1) spec.send_counts[2] = 5;
    PlanBuilder b("test", spec, rank, 3, {.peers_mapped = true});
    plans.push_back(*std::move(b).Build());
  }
  const absl::Status status = Verify(plans);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "spec of rank 2 differs in recv_counts: it expects 1 elements of rank 1, which sends 5");
}

// Values that no enumerator has, and places that no step uses, are found or passed over, and harm nobody.
TEST(VerifyTest, ValuesOutsideOfTheirTypesAreFaults) {
  const std::vector<Plan> right = Plans({.count = 4}, 2, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); });
  ASSERT_EQ(Verify(right), absl::OkStatus());
  const auto error_with = [&](const std::function<void(Plan&)>& change) {
    std::vector<Plan> plans = right;
    change(plans[1]);
    const absl::Status status = Verify(plans);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error_with([](Plan& plan) { plan.refs[0].dtype = static_cast<DType>(99); }), HasSubstr("dtype 99"));
  EXPECT_THAT(error_with([](Plan& plan) { plan.refs[0].space = static_cast<Space>(99); }), HasSubstr("space 99"));
  EXPECT_THAT(error_with([](Plan& plan) { plan.steps[0].kind = static_cast<StepKind>(99); }),
              HasSubstr("no such kind"));
  EXPECT_THAT(error_with([](Plan& plan) { plan.steps[0].op = static_cast<ReduceOp>(99); }), HasSubstr("no op 99"));
  EXPECT_THAT(error_with([](Plan& plan) { plan.steps[0].collective = static_cast<Collective>(99); }),
              HasSubstr("no collective 99"));
  std::vector<Plan> with_unused = right;
  with_unused[1].refs.push_back({.space = Space::kBlock, .owner = 0, .bytes = 4});
  EXPECT_EQ(Verify(with_unused), absl::OkStatus());
}

TEST(VerifyTest, BarrierMustMeetEverybody) {
  EXPECT_THAT(ErrorOf({.collective = Collective::kBarrier}, 3,
                      [](PlanBuilder& b) {
                        b.Signal();
                        b.Wait((b.rank() + 1) % 3);
                      }),
              HasSubstr("barrier: rank 0 may end before rank 2 began"));
}

TEST(VerifyTest, ValuesMustBeThePromisedOnes) {
  const CollectiveSpec avg{.op = ReduceOp::kAvg, .count = 4};
  EXPECT_THAT(ErrorOf(avg, 2, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); }),
              HasSubstr("found sum(in@0[0], in@1[0])"));
  EXPECT_THAT(ErrorOf(avg, 2,
                      [](PlanBuilder& b) {
                        AllToAllThenReduce(b, ReduceOp::kAvg);
                        b.Scale(b.out(), b.out(), 2);
                      }),
              HasSubstr("found sum(in@0[0], in@1[0]) / 2 / 2"));
  EXPECT_THAT(ErrorOf({.count = 4}, 2, [](PlanBuilder&) {}), HasSubstr("found nothing"));
  EXPECT_THAT(ErrorOf({.count = 4}, 1, [](PlanBuilder& b) { b.Copy(b.out(), b.Scratch(DType::kF32, 4)); }),
              HasSubstr("scratch[0,16) f32 is not initialised"));
}

// The slip of a ring that passes on its sum in place of what arrived: the result of step t adds up 2^t inputs.
TEST(VerifyTest, AResultOfVeryManyInputsIsAFaultLikeAnyOther) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    EXPECT_THAT(ErrorOf({.op = op, .count = 4}, 40,
                        [](PlanBuilder& b) {
                          b.Copy(b.out(), b.in());
                          const Ref arrived = b.Scratch(b.in().dtype, b.in().count());
                          for (int step = 0; step < b.size() - 1; ++step) {
                            b.Send((b.rank() + 1) % b.size(), b.out());
                            b.Recv((b.rank() + b.size() - 1) % b.size(), arrived);
                            b.Reduce(b.out(), {b.out(), arrived}, b.spec().op);
                          }
                        }),
                HasSubstr(absl::StrCat(Name(op), " of element 0 of all 40 ranks is expected, found ", Name(op), "(")));
  }
}

TEST(VerifyTest, IntegersAreDividedLast) {
  const Author divides_first = [](PlanBuilder& b) {
    const Ref mine = b.Scratch(b.in().dtype, 4);
    const Ref theirs = b.Scratch(b.in().dtype, 4);
    b.Scale(mine, b.in(), 2);
    b.Send(1 - b.rank(), mine);
    b.Recv(1 - b.rank(), theirs);
    b.Reduce(b.out(), {b.rank() == 0 ? mine : theirs, b.rank() == 0 ? theirs : mine}, ReduceOp::kSum);
  };
  EXPECT_EQ(ErrorOf({.op = ReduceOp::kAvg, .count = 4}, 2, divides_first), "");
  // Floating numbers are divided once, at any place.
  EXPECT_THAT(ErrorOf({.op = ReduceOp::kAvg, .count = 4}, 4,
                      [](PlanBuilder& b) {
                        AllToAllThenReduce(b, ReduceOp::kSum);
                        b.Scale(b.out(), b.out(), 2);
                        b.Scale(b.out(), b.out(), 2);
                      }),
              HasSubstr("in@3[0]) / 2 / 2"));
  EXPECT_THAT(ErrorOf({.dtype = DType::kI32, .op = ReduceOp::kAvg, .count = 4}, 2, divides_first),
              HasSubstr("avg of element 0"));
}

TEST(VerifyTest, SixteenBitSumsAreRoundedOnce) {
  EXPECT_THAT(ErrorOf({.dtype = DType::kBF16, .count = 4}, 3,
                      [](PlanBuilder& b) {
                        const Ref sum = b.Scratch(DType::kBF16, 4);
                        std::vector<Ref> all(3, b.in());
                        for (Rank peer : {(b.rank() + 1) % 3, (b.rank() + 2) % 3}) {
                          all[peer] = b.Scratch(DType::kBF16, 4);
                          b.Send(peer, b.in());
                          b.Recv(peer, all[peer]);
                        }
                        b.Reduce(sum, {all[0], all[1]}, ReduceOp::kSum);
                        b.Reduce(b.out(), {sum, all[2]}, ReduceOp::kSum);
                      }),
              HasSubstr("src holds bf16(sum(in@0[0], in@1[0])), which is rounded already"));
}

// The verifier demands exactly one contribution of each rank. With some operators a second contribution of a rank
// changes nothing; with xor it does.
TEST(VerifyTest, EveryRankContributesOnceWithEveryOperator) {
  for (const auto& [dtype, op] :
       {std::pair{DType::kI32, ReduceOp::kBitwiseAnd}, std::pair{DType::kU8, ReduceOp::kBitwiseOr},
        std::pair{DType::kU64, ReduceOp::kBitwiseXor}, std::pair{DType::kBool, ReduceOp::kSum},
        std::pair{DType::kBool, ReduceOp::kBitwiseXor}, std::pair{DType::kC64, ReduceOp::kProd}}) {
    const CollectiveSpec spec{.dtype = dtype, .op = op, .count = 4};
    EXPECT_EQ(ErrorOf(spec, 3, [](PlanBuilder& b) { AllToAllThenReduce(b, b.spec().op); }), "");
    const auto adds_again = [](PlanBuilder& b) {
      AllToAllThenReduce(b, b.spec().op);
      b.Reduce(b.out(), {b.out(), b.in()}, b.spec().op);
    };
    EXPECT_THAT(ErrorOf(spec, 3, adds_again),
                HasSubstr(absl::StrCat(Name(op), " of element 0 of all 3 ranks is expected")));
    const auto twice_again = [](PlanBuilder& b) {
      AllToAllThenReduce(b, b.spec().op);
      b.Reduce(b.out(), {b.out(), b.in(), b.in()}, b.spec().op);
    };
    EXPECT_THAT(ErrorOf(spec, 3, twice_again), HasSubstr("is expected, found"));
    const auto leaves_out = [](PlanBuilder& b) { b.Copy(b.out(), b.in()); };
    EXPECT_THAT(ErrorOf(spec, 3, leaves_out), HasSubstr("is expected, found in@0[0]"));
  }
  const CollectiveSpec sum{.dtype = DType::kBool, .count = 4};
  EXPECT_THAT(ErrorOf(sum, 2, [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kBitwiseAnd); }),
              HasSubstr("found band(in@0[0], in@1[0])"));
}

TEST(VerifyTest, StepsMustBeDefinedForTheirTypes) {
  std::vector<Plan> plans = Plans({.dtype = DType::kI32, .op = ReduceOp::kBitwiseXor, .count = 2}, 2,
                                  [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kBitwiseXor); });
  for (Plan& plan : plans) {
    plan.spec.dtype = DType::kF32;
    plan.spec.op = ReduceOp::kSum;
    for (Ref& ref : plan.refs) ref.dtype = DType::kF32;
  }
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("op bxor cannot reduce srcs of f32"));
  for (Plan& plan : plans) plan.steps.back().op = ReduceOp::kPremulSum;
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("op premul_sum cannot reduce srcs of f32"));
  const Author copies = [](PlanBuilder& b) {
    const Ref other = b.Scratch(DType::kI16, 1);
    b.Copy(other, b.in());
    b.Copy(b.out(), other);
  };
  plans = Plans({.dtype = DType::kU16, .count = 1}, 1, copies);
  EXPECT_THAT(std::string(Verify(plans).message()), HasSubstr("found u16(i16(in@0[0]))"));  // saturates
  for (Ref& ref : plans[0].refs) {
    if (ref.dtype == DType::kI16) ref.dtype = DType::kBF16;
  }
  plans[0].spec.dtype = DType::kF16;
  for (Ref& ref : plans[0].refs) {
    if (ref.dtype == DType::kU16) ref.dtype = DType::kF16;
  }
  EXPECT_EQ(std::string(Verify(plans).message()), "");  // floating numbers may be rounded
}

TEST(VerifyTest, PremultipliedSumsTakeEveryRanksOwnFactorOnce) {
  const CollectiveSpec spec{.op = ReduceOp::kPremulSum, .count = 4};
  // Each rank sends its elements times its factor, `times` times over.
  const auto with_factors = [](int times) {
    return [times](PlanBuilder& b) {
      const Ref mine = b.Scratch(b.in().dtype, 4);
      const Ref theirs = b.Scratch(b.in().dtype, 4);
      b.Copy(mine, b.in());
      for (int i = 0; i < times; ++i) b.ScaleByFactor(mine, mine);
      b.Send(1 - b.rank(), mine);
      b.Recv(1 - b.rank(), theirs);
      b.Reduce(b.out(), {b.rank() == 0 ? mine : theirs, b.rank() == 0 ? theirs : mine}, ReduceOp::kSum);
    };
  };
  EXPECT_EQ(ErrorOf(spec, 2, with_factors(1)), "");
  EXPECT_EQ(ErrorOf({.dtype = DType::kBF16, .op = ReduceOp::kPremulSum, .count = 4}, 2, with_factors(1)), "");
  EXPECT_EQ(ErrorOf({.dtype = DType::kC64, .op = ReduceOp::kPremulSum, .count = 4}, 2, with_factors(1)), "");
  EXPECT_THAT(ErrorOf(spec, 2, with_factors(0)), HasSubstr("premul_sum of element 0 of all 2 ranks is expected"));
  EXPECT_THAT(ErrorOf(spec, 2, with_factors(2)), HasSubstr("in@0[0] · factor@0 · factor@0"));
  EXPECT_THAT(ErrorOf({.count = 4}, 2, with_factors(1)), HasSubstr("sum of element 0 of all 2 ranks is expected"));
  EXPECT_THAT(ErrorOf(spec, 2,
                      [](PlanBuilder& b) {
                        AllToAllThenReduce(b, ReduceOp::kSum);
                        b.ScaleByFactor(b.out(), b.out());
                      }),
              HasSubstr("found sum(in@0[0], in@1[0]) · factor@0"));
  // Every rank multiplies what it has received by its own factor.
  EXPECT_THAT(
      ErrorOf(spec, 2,
              [](PlanBuilder& b) {
                const Ref theirs = b.Scratch(b.in().dtype, 4);
                b.Send(1 - b.rank(), b.in());
                b.Recv(1 - b.rank(), theirs);
                const Ref mine = b.Scratch(b.in().dtype, 4);
                b.ScaleByFactor(mine, b.in());
                b.ScaleByFactor(theirs, theirs);
                b.Reduce(b.out(), {b.rank() == 0 ? mine : theirs, b.rank() == 0 ? theirs : mine}, ReduceOp::kSum);
              }),
      HasSubstr("found sum(in@0[0] · factor@0, in@1[0] · factor@0)"));
}

TEST(VerifyTest, ReplicasMustBeComputedAlike) {
  EXPECT_THAT(
      ErrorOf({.count = 4}, 2,
              [](PlanBuilder& b) {
                const Ref theirs = b.Scratch(DType::kF32, 4);
                b.Send(1 - b.rank(), b.in());
                b.Recv(1 - b.rank(), theirs);
                b.Reduce(b.out(), {b.in(), theirs}, ReduceOp::kSum);
              }),
      HasSubstr("replicas differ: out element 0 of rank 0 is sum(in@0[0], in@1[0]), of rank 1 sum(in@1[0], in@0[0])"));
}

// Sums of the same numbers in f32 and in f64 differ.
TEST(VerifyTest, ReplicasMustBeComputedInOneType) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const auto sums_on_rank_0_in = [dtype](DType wide) {
      return [dtype, wide](PlanBuilder& b) {
        std::vector<Ref> srcs;
        for (Rank peer = 0; peer < b.size(); ++peer) {
          srcs.push_back(b.Scratch(dtype, b.in().count()));
          if (peer != b.rank()) {
            b.Send(peer, b.in());
            b.Recv(peer, srcs.back());
          } else {
            b.Copy(srcs.back(), b.in());
          }
        }
        if (b.rank() != 0) return b.Reduce(b.out(), srcs, ReduceOp::kSum);
        std::vector<Ref> widened;
        for (const Ref& src : srcs) {
          widened.push_back(b.Scratch(wide, src.count()));
          b.Copy(widened.back(), src);
        }
        const Ref sum = b.Scratch(wide, b.in().count());
        b.Reduce(sum, widened, ReduceOp::kSum);
        b.Copy(b.out(), sum);
      };
    };
    EXPECT_EQ(ErrorOf({.dtype = dtype, .count = 4}, 3, sums_on_rank_0_in(DType::kF32)), "");
    EXPECT_THAT(ErrorOf({.dtype = dtype, .count = 4}, 3, sums_on_rank_0_in(DType::kF64)), HasSubstr("replicas differ"));
  }
}

TEST(VerifyTest, TheOwnerOfAChunkMustUseItsDecodedValueToo) {
  ASSERT_FALSE(AllCodecs().empty());
  const CodecChoice codec{AllCodecs()[0], {.block = 0}};
  auto author = [&codec](bool owner_decodes) {
    return [&codec, owner_decodes](PlanBuilder& b) {
      const Ref message = b.Scratch(DType::kU8, codec.codec->encoded_bytes(b.spec().count, codec.options));
      if (b.rank() == 0) {
        const Ref theirs = b.Scratch(DType::kF32, b.spec().count);
        const Ref sum = b.Scratch(DType::kF32, b.spec().count);
        b.Recv(1, theirs);
        b.Reduce(sum, {b.in(), theirs}, ReduceOp::kSum);
        b.Encode(message, sum, codec);
        b.Send(1, message);
        owner_decodes ? b.Decode(b.out(), message, codec) : b.Copy(b.out(), sum);
      } else {
        b.Send(0, b.in());
        b.Recv(0, message);
        b.Decode(b.out(), message, codec);
      }
    };
  };
  EXPECT_EQ(ErrorOf({.count = 4}, 2, author(true)), "");
  EXPECT_THAT(ErrorOf({.count = 4}, 2, author(false)), HasSubstr("replicas differ"));
}

TEST(VerifyTest, RoundingAtRandomTwiceDoesNotGiveOneMessage) {
  auto author = [](Rounding rounding) {
    return [rounding](PlanBuilder& b) {
      const CodecChoice codec{*FindCodec("uint8_block"), {.block = 16, .rounding = rounding}};
      const Ref message = b.Scratch(DType::kU8, codec.codec->encoded_bytes(b.spec().count, codec.options));
      AllToAllThenReduce(b, ReduceOp::kSum);
      b.Encode(message, b.out(), codec);
      b.Decode(b.out(), message, codec);
    };
  };
  EXPECT_EQ(ErrorOf({.count = 40}, 2, author(Rounding::kNearest)), "");
  EXPECT_THAT(ErrorOf({.count = 40}, 2, author(Rounding::kStochastic)), HasSubstr("replicas differ"));
}

TEST(VerifyTest, InPlaceInputThatIsNotOutputIsKept) {
  EXPECT_THAT(ErrorOf({.collective = Collective::kReduceScatter, .count = 1, .in_place = true}, 1,
                      [](PlanBuilder& b) { b.Scale(b.out(), b.in(), 2); }),
              HasSubstr("rank 0 ends with out[0,4) f32"));
}

// The author of a schedule looks for the step that made the result what it is.
TEST(VerifyTest, AWrongResultNamesTheStepThatHasWrittenIt) {
  const auto undivided = [](PlanBuilder& b) { AllToAllThenReduce(b, ReduceOp::kSum); };
  EXPECT_THAT(ErrorOf({.op = ReduceOp::kAvg, .count = 4}, 2, undivided),
              testing::ContainsRegex("found sum\\(in@0\\[0\\], in@1\\[0\\]\\), written by rank 0 step [0-9]+ "
                                     "\\(reduce out\\[0,16\\) f32 "));
}

// All ranks combine each input once and in one order, also where integers or minima would be the same otherwise.
TEST(VerifyTest, OperatorsThatForgiveOrderAndRepetitionAreComputedAlikeAllTheSame) {
  const auto own_first = [](ReduceOp op) {
    return [op](PlanBuilder& b) {
      const Ref theirs = b.Scratch(b.spec().dtype, b.spec().count);
      b.Send(1 - b.rank(), b.in());
      b.Recv(1 - b.rank(), theirs);
      b.Reduce(b.out(), {b.in(), theirs}, op);
    };
  };
  EXPECT_THAT(ErrorOf({.dtype = DType::kI32, .count = 4}, 2, own_first(ReduceOp::kSum)), HasSubstr("replicas differ"));
  const auto twice = [](PlanBuilder& b) {  // two rounds of dissemination among three ranks
    const Ref first = b.Scratch(b.spec().dtype, b.spec().count);
    const Ref second = b.Scratch(b.spec().dtype, b.spec().count);
    const Ref partial = b.Scratch(b.spec().dtype, b.spec().count);
    b.Send((b.rank() + 1) % 3, b.in());
    b.Recv((b.rank() + 2) % 3, first);
    b.Reduce(partial, {b.in(), first}, ReduceOp::kMax);
    b.Send((b.rank() + 2) % 3, partial);
    b.Recv((b.rank() + 1) % 3, second);
    b.Reduce(b.out(), {partial, second}, ReduceOp::kMax);
  };
  EXPECT_THAT(ErrorOf({.op = ReduceOp::kMax, .count = 4}, 3, twice),
              HasSubstr("max of element 0 of all 3 ranks is expected"));
}

TEST(VerifyTest, NoStepIsInVain) {
  EXPECT_THAT(ErrorOf({.count = 4}, 1,
                      [](PlanBuilder& b) {
                        b.Copy(b.Scratch(DType::kF32, 4), b.in());
                        b.Copy(b.out(), b.in());
                      }),
              HasSubstr("rank 0 step 0 (copy scratch[0,16) f32 = in[0,16) f32): nothing uses its result"));
}

}  // namespace
}  // namespace tutti
