#include "tutti/plan_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const PlanOptions kMapped{.peers_mapped = true};

PlanBuilder Builder(const CollectiveSpec& spec = {.count = 8}, const PlanOptions& options = kMapped, Rank rank = 1,
                    int size = 4) {
  return PlanBuilder("test", spec, rank, size, options);
}

Plan Built(PlanBuilder& builder) {
  absl::StatusOr<Plan> plan = std::move(builder).Build();
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : Plan();
}

std::vector<StepId> Deps(const Plan& plan, StepId step) {
  const absl::Span<const StepId> deps = plan.deps_of(plan.steps[step]);
  return {deps.begin(), deps.end()};
}

// A signal shares a word with the number of its run.
TEST(PlanBuilderTest, RefusesMoreSignalsThanAWordHolds) {
  for (const int more : {0, 1}) {
    PlanBuilder b = Builder();
    for (int i = 0; i < 65'534 + more; ++i) b.Signal();
    const absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_EQ(plan.ok(), more == 0) << plan.status();
    if (more > 0) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr("at most 65534 signals"));
    }
  }
}

TEST(PlanBuilderTest, ARankSendsAPeerNoMoreMessagesThanHaveNumbers) {
  constexpr int kMost = (1 << 18) - 1;
  for (const int messages : {kMost, kMost + 1}) {
    PlanBuilder b("test", {.count = 1}, 0, 2, {});
    for (int i = 0; i < messages; ++i) b.Send(1, b.in());
    const absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_EQ(plan.ok(), messages == kMost) << plan.status();
    if (messages > kMost) {
      EXPECT_THAT(std::string(plan.status().message()), HasSubstr("at most 262143 messages to one peer"));
    }
  }
}

TEST(ChunkOfTest, CoversEveryElementOnceAndNearlyEqually) {
  for (std::int64_t count : {0, 1, 6, 7, 8, 97}) {
    std::int64_t at = 0;
    for (int i = 0; i < 7; ++i) {
      const Range chunk = ChunkOf(count, 7, i);
      EXPECT_EQ(chunk.begin, at);
      EXPECT_GE(chunk.count, count / 7);
      EXPECT_LE(chunk.count, count / 7 + 1);
      at += chunk.count;
    }
    EXPECT_EQ(at, count);
  }
}

TEST(PlanBuilderTest, InputAndOutputOutOfPlace) {
  PlanBuilder b = Builder({.collective = Collective::kReduceScatter, .count = 3});
  EXPECT_EQ(b.in(), (Ref{.space = Space::kIn, .bytes = 48}));
  EXPECT_EQ(b.out(), (Ref{.space = Space::kOut, .bytes = 12}));
  const Plan plan = Built(b);
  EXPECT_EQ(plan.in_bytes, 48);
  EXPECT_EQ(plan.out_bytes, 12);
}

TEST(PlanBuilderTest, ABlockIsOfAPeerInAWholeAllToAllV) {
  const CollectiveSpec exchange{
      .collective = Collective::kAllToAllV, .send_counts = {1, 2, 3, 4}, .recv_counts = {5, 2, 7, 8}};
  PlanBuilder b = Builder(exchange);
  EXPECT_EQ(b.BlockFrom(2), (Ref{.space = Space::kBlock, .owner = 2, .bytes = 28}));
  b.Copy(b.out().Elements(7, 7), b.BlockFrom(2));
  EXPECT_EQ(Built(b).refs[1], (Ref{.space = Space::kBlock, .owner = 2, .bytes = 28}));

  const auto error_of = [&](const CollectiveSpec& spec, const std::function<void(PlanBuilder&)>& author) {
    PlanBuilder wrong = Builder(spec);
    author(wrong);
    return std::string(std::move(wrong).Build().status().message());
  };
  EXPECT_THAT(error_of(exchange, [](PlanBuilder& w) { w.Copy(w.out().Elements(0, 2), w.BlockFrom(2).Elements(6, 2)); }),
              HasSubstr("block[24, 32) of rank 2 lies outside its space of 28 bytes"));
  EXPECT_THAT(error_of(exchange, [](PlanBuilder& w) { w.Copy(w.BlockFrom(0), w.out().Elements(0, 5)); }),
              HasSubstr("read-only"));
  for (const Rank peer : {1, 4, -1}) {
    EXPECT_THAT(error_of(exchange, [&](PlanBuilder& w) { w.BlockFrom(peer); }),
                HasSubstr("only an all_to_all_v has blocks, from ranks 0…3 but the rank itself"));
  }
  EXPECT_THAT(error_of({.count = 8}, [](PlanBuilder& w) { w.BlockFrom(2); }), HasSubstr("a block from rank 2"));
  const Ref block{.space = Space::kBlock, .owner = 2, .bytes = 4};
  EXPECT_THAT(error_of({.count = 8}, [&](PlanBuilder& w) { w.Copy(w.out().Elements(0, 1), block); }),
              HasSubstr("only a whole all_to_all_v has blocks"));
}

TEST(PlanBuilderTest, InPlaceTheSmallerIsABlockOfTheLarger) {
  PlanBuilder scatter = Builder({.collective = Collective::kReduceScatter, .count = 3, .in_place = true});
  EXPECT_EQ(scatter.in(), (Ref{.space = Space::kOut, .bytes = 48}));
  EXPECT_EQ(scatter.out(), (Ref{.space = Space::kOut, .offset = 12, .bytes = 12}));
  PlanBuilder gather = Builder({.collective = Collective::kAllGather, .count = 3, .in_place = true});
  EXPECT_EQ(gather.in(), (Ref{.space = Space::kOut, .offset = 12, .bytes = 12}));
  EXPECT_EQ(gather.out(), (Ref{.space = Space::kOut, .bytes = 48}));
  const Plan plan = Built(gather);
  EXPECT_EQ(plan.in_bytes, 0);
  EXPECT_EQ(plan.out_bytes, 48);
}

TEST(PlanBuilderTest, InPlaceWhereOneSideIsEmpty) {
  PlanBuilder gather = Builder({.collective = Collective::kGather, .count = 3, .root = 0, .in_place = true});
  EXPECT_EQ(gather.in(), (Ref{.space = Space::kOut, .bytes = 12}));
  EXPECT_EQ(gather.out().bytes, 0);
  PlanBuilder scatter = Builder({.collective = Collective::kScatter, .count = 3, .root = 0, .in_place = true});
  EXPECT_EQ(scatter.in().bytes, 0);
  EXPECT_EQ(scatter.out(), (Ref{.space = Space::kOut, .bytes = 12}));
}

TEST(PlanBuilderTest, ScratchIsAlignedAndZeroCountsTakeNothing) {
  PlanBuilder b = Builder();
  EXPECT_EQ(b.Scratch(DType::kU8, 3).offset, 0);
  EXPECT_EQ(b.Scratch(DType::kF32, 0), (Ref{.space = Space::kScratch}));
  EXPECT_EQ(b.Scratch(DType::kF64, 2).offset, 64);
  EXPECT_EQ(b.Residual("residual", DType::kF32, 5).offset, 0);
  const Plan plan = Built(b);
  EXPECT_EQ(plan.scratch_bytes, 80);
  EXPECT_EQ(plan.state_bytes, 20);
}

TEST(PlanBuilderTest, WritersAndReadersOfOverlappingBytesAreOrdered) {
  PlanBuilder b = Builder();
  const Ref s = b.Scratch(DType::kF32, 8);
  b.Recv(0, s.Elements(0, 4));                     // 0
  b.Recv(0, s.Elements(4, 4));                     // 1
  b.Send(2, s.Elements(2, 4));                     // 2 reads halves of both
  b.Send(3, s.Elements(0, 2));                     // 3
  b.Recv(2, s.Elements(3, 1));                     // 4 writes what 2 reads
  b.Reduce(b.out(), {b.in(), s}, ReduceOp::kSum);  // 5 reads all
  b.Recv(3, s);                                    // 6 overwrites all
  b.Copy(b.out(), s);                              // 7
  const Plan plan = Built(b);
  EXPECT_THAT(Deps(plan, 0), ElementsAre());
  EXPECT_THAT(Deps(plan, 1), ElementsAre());
  EXPECT_THAT(Deps(plan, 2), ElementsAre(0, 1));
  EXPECT_THAT(Deps(plan, 3), ElementsAre(0));
  EXPECT_THAT(Deps(plan, 4), ElementsAre(2));
  EXPECT_THAT(Deps(plan, 5), ElementsAre(4));     // 0 and 1 are implied by 4 through 2
  EXPECT_THAT(Deps(plan, 6), ElementsAre(3, 5));  // 2 is implied by 5
  EXPECT_THAT(Deps(plan, 7), ElementsAre(6));
}

TEST(PlanBuilderTest, SendsAndReadsOfOneRangeRunAtTheSameTime) {
  PlanBuilder b = Builder();
  for (Rank peer : {0, 2, 3, 0}) b.Send(peer, b.in());
  const Plan plan = Built(b);
  EXPECT_TRUE(plan.deps.empty());
  EXPECT_EQ(plan.steps[0].ordinal, 0u);
  EXPECT_EQ(plan.steps[2].ordinal, 0u);
  EXPECT_EQ(plan.steps[3].ordinal, 1u);
  EXPECT_EQ(WireBytes(plan), 4 * 32);
}

TEST(PlanBuilderTest, InPlaceTheInputOrdersLikeTheOutput) {
  PlanBuilder b = Builder({.count = 8, .in_place = true});
  b.Send(0, b.in().Elements(0, 4));
  b.Recv(0, b.out());
  b.Send(2, b.in().Elements(7, 1));
  const Plan plan = Built(b);
  EXPECT_THAT(Deps(plan, 1), ElementsAre(0));
  EXPECT_THAT(Deps(plan, 2), ElementsAre(1));
}

TEST(PlanBuilderTest, PeersMemoryIsOrderedPerOwner) {
  PlanBuilder b = Builder();
  b.Copy(b.out().At(0), b.in());         // 0
  b.Copy(b.out().At(2), b.in());         // 1
  b.Copy(b.out(), b.out().At(0));        // 2
  b.Copy(b.out().At(1), b.out().At(2));  // 3: its own rank written as a peer
  const Plan plan = Built(b);
  EXPECT_THAT(Deps(plan, 1), ElementsAre());
  EXPECT_THAT(Deps(plan, 2), ElementsAre(0));
  EXPECT_THAT(Deps(plan, 3), ElementsAre(1, 2));
  EXPECT_EQ(plan.dsts(plan.steps[3])[0].owner, kSelf);
  EXPECT_TRUE(plan.maps_peers());
  EXPECT_EQ(WireBytes(plan), 4 * 32);
}

TEST(PlanBuilderTest, SignalFollowsEverythingAndEverythingFollowsWait) {
  PlanBuilder b = Builder();
  b.Copy(b.out(), b.in());  // 0
  b.Send(0, b.out());       // 1
  b.Send(2, b.in());        // 2
  b.Signal();               // 3
  b.WaitAll();              // 4, 5, 6
  b.Send(3, b.in());        // 7
  b.Recv(3, b.out());       // 8
  b.Signal();               // 9
  b.Wait(0);                // 10
  const Plan plan = Built(b);
  EXPECT_THAT(Deps(plan, 3), ElementsAre(1, 2));
  EXPECT_THAT(Deps(plan, 4), ElementsAre());
  EXPECT_THAT(Deps(plan, 5), ElementsAre(4));
  EXPECT_THAT(Deps(plan, 6), ElementsAre(5));
  EXPECT_THAT(Deps(plan, 7), ElementsAre(6));
  EXPECT_THAT(Deps(plan, 8), ElementsAre(1, 6));
  EXPECT_THAT(Deps(plan, 9), ElementsAre(3, 7, 8));
  EXPECT_THAT(Deps(plan, 10), ElementsAre(6));
  EXPECT_EQ(plan.steps[9].ordinal, 2u);
  EXPECT_EQ(plan.steps[10].ordinal, 2u);
  EXPECT_EQ(plan.steps[4].peer, 2);
}

TEST(PlanBuilderTest, WaitAllWaitsOnlyForWhatIsStillOutstanding) {
  PlanBuilder b = Builder();
  b.Signal();
  b.Wait(0);
  b.WaitAll();
  b.WaitAll();
  EXPECT_EQ(Built(b).steps.size(), 4u);
}

TEST(PlanBuilderTest, EmptyRangesMakeNoStep) {
  PlanBuilder b = Builder();
  const Ref none = b.out().Elements(8, 0);
  b.Send(0, none);
  b.Recv(0, none);
  b.Copy(none, b.in().Elements(0, 0));
  b.Reduce(none, {none, none}, ReduceOp::kSum);
  b.Reduce(none, std::vector<Ref>{none, none}, ReduceOp::kSum);
  b.Scale(none, none, 2);
  b.Copy(b.out(), b.out());
  const Plan plan = Built(b);
  EXPECT_TRUE(plan.steps.empty());
}

TEST(PlanBuilderTest, NoElementsMakeNoMessageOfACodec) {
  const CodecChoice codec{*FindCodec("uint8_block"), {.block = 16}};
  ASSERT_GT(codec.codec->encoded_bytes(0, codec.options), 0);
  PlanBuilder b = Builder();
  const Ref none = b.Message(0, codec);
  EXPECT_EQ(none.bytes, 0);
  b.Encode(none, b.in().Elements(0, 0), codec);
  b.Send(0, none);
  b.Decode(b.out().Elements(0, 0), none, codec);
  EXPECT_EQ(b.Message(8, codec).bytes, codec.codec->encoded_bytes(8, codec.options));
  EXPECT_TRUE(Built(b).steps.empty());
}

TEST(PlanBuilderTest, StepsKnowTheScheduleThatHasWrittenThem) {
  PlanBuilder b = Builder();
  b.Send(0, b.in());
  b.WriteBy("all_reduce:outer", [](PlanBuilder& outer) {
    outer.Recv(0, outer.out());
    outer.WriteBy("reduce:inner", [](PlanBuilder& inner) { inner.Send(2, inner.in()); });
    outer.Send(3, outer.in());
  });
  b.Recv(2, b.out());
  const Plan plan = Built(b);
  std::vector<std::string> schedules;
  for (StepId id = 0; id < plan.steps.size(); ++id) schedules.emplace_back(plan.schedule_of(id));
  EXPECT_THAT(schedules, ElementsAre("", "all_reduce:outer", "reduce:inner", "all_reduce:outer", ""));
}

TEST(PlanBuilderTest, MisuseByAScheduleNamesTheSchedule) {
  PlanBuilder b = Builder();
  b.WriteBy("all_reduce:mine", [](PlanBuilder& part) { part.Send(4, part.in()); });
  EXPECT_THAT(std::string(std::move(b).Build().status().message()),
              HasSubstr("test, rank 1 of 4, step 0 (written by schedule all_reduce:mine): send: peer 4"));
}

TEST(PlanBuilderTest, LongRangesBecomeSegmentsThatPipeline) {
  PlanBuilder b = Builder({.count = 8}, {.segment_bytes = 12});
  const Ref s = b.Scratch(DType::kF32, 8);
  b.Recv(0, s);                                    // 0 1 2
  b.Reduce(b.out(), {b.in(), s}, ReduceOp::kSum);  // 3 4 5
  b.Send(2, b.out());                              // 6 7 8
  const Plan plan = Built(b);
  ASSERT_EQ(plan.steps.size(), 9u);
  EXPECT_EQ(plan.dsts(plan.steps[0])[0].bytes, 12);
  EXPECT_EQ(plan.dsts(plan.steps[2])[0].bytes, 8);
  EXPECT_EQ(plan.steps[8].ordinal, 2u);
  EXPECT_THAT(Deps(plan, 4), ElementsAre(1));
  EXPECT_THAT(Deps(plan, 8), ElementsAre(5));
}

TEST(PlanBuilderTest, TheLongestBufferHasABoundedNumberOfSegments) {
  constexpr std::int64_t kMax = 1 << 16;
  for (std::int64_t count : {kMax, kMax + 1, std::int64_t{1} << 44}) {
    // The block of rank 1 is as long as what the root has for it: both cut it alike.
    for (Rank rank : {0, 1}) {
      PlanBuilder b = Builder({.collective = Collective::kScatter, .dtype = DType::kF64, .count = count / 4},
                              {.segment_bytes = 8}, rank);
      if (rank == 0) b.Send(1, b.in().Elements(b.spec().count, b.spec().count));
      if (rank == 1) b.Recv(0, b.out());
      EXPECT_EQ(Built(b).steps.size(), kMax / 4) << count;
    }
    CollectiveSpec blocks{.collective = Collective::kAllToAllV};
    blocks.send_counts = {count, 0, 7, 0};
    blocks.recv_counts = {0, 0, 0, 0};
    PlanBuilder b = Builder(blocks, {.segment_bytes = 8});
    b.Send(0, b.in().Elements(0, count));
    EXPECT_LE(Built(b).steps.size(), kMax / 4) << count;
  }
}

TEST(PlanBuilderTest, SixteenBitRangesAreCutWhereTheirAccumulatorsAre) {
  PlanBuilder b = Builder({.dtype = DType::kBF16, .count = 8}, {.segment_bytes = 16});
  const Ref s = b.Scratch(DType::kF32, 8);
  b.Recv(0, b.out());                         // 0 1
  b.Copy(s, b.out());                         // 2 3
  b.Reduce(b.out(), {s, s}, ReduceOp::kAvg);  // 4 5
  const Plan plan = Built(b);
  ASSERT_EQ(plan.steps.size(), 6u);
  EXPECT_THAT(Deps(plan, 3), ElementsAre(1));
  EXPECT_THAT(Deps(plan, 5), ElementsAre(3));
  EXPECT_EQ(plan.steps[5].divisor, 4);
}

TEST(PlanBuilderTest, ASegmentHoldsAtLeastOneElement) {
  PlanBuilder b = Builder({.collective = Collective::kBroadcast, .dtype = DType::kC128, .count = 8},
                          {.segment_bytes = 8, .peers_mapped = false}, 0);
  b.Send(1, b.in());
  EXPECT_EQ(b.options().segment_bytes, 16);
  EXPECT_EQ(Built(b).steps.size(), 8u);
  PlanBuilder narrow = Builder({.collective = Collective::kBroadcast, .dtype = DType::kU8, .count = 8},
                               {.segment_bytes = 8, .peers_mapped = false}, 0);
  narrow.Send(1, narrow.Scratch(DType::kC128, 3));
  EXPECT_EQ(Built(narrow).steps.size(), 3u);
}

TEST(PlanBuilderTest, MisuseIsRememberedAndNamesTheStep) {
  struct Row {
    std::function<void(PlanBuilder&)> author;
    const char* error;
  };
  const std::vector<Row> rows = {
      {[](PlanBuilder& b) { b.Send(4, b.in()); }, "step 1: send: peer 4 must be in 0…3"},
      {[](PlanBuilder& b) { b.Recv(1, b.out()); }, "step 1: recv: peer 1 is the rank of the plan"},
      {[](PlanBuilder& b) { b.Recv(0, b.in()); }, "dsts[0] in[0, 32): the input is read-only"},
      {[](PlanBuilder& b) { b.Send(0, b.in().Elements(5, 4)); }, "srcs[0] in[20, 36) lies outside its space of 32"},
      {[](PlanBuilder& b) { b.Send(0, b.in().Elements(-1, 4)); }, "lies outside"},
      {[](PlanBuilder& b) { b.Copy(b.out(), b.in().At(9)); }, "srcs[0] owner 9 must be in 0…3"},
      {[](PlanBuilder& b) { b.Copy(b.out(), b.in().Elements(0, 3)); }, "copy: dsts of 8 elements, srcs[0] of 3"},
      {[](PlanBuilder& b) { b.Copy(b.out().Elements(1, 7), b.out().Elements(0, 7)); }, "without being the same range"},
      {[](PlanBuilder& b) { b.Reduce(b.out(), {}, ReduceOp::kSum); }, "reduce: 1 dsts and 0 srcs"},
      {[](PlanBuilder& b) {
         b.Reduce(b.out(), {b.in(), b.in().Elements(0, 1)}, ReduceOp::kSum);
       },
       "reduce: srcs must all be f32 and 8 elements, got f32 and 1"},
      {[](PlanBuilder& b) { b.Reduce(b.out(), {b.Scratch(DType::kI32, 8)}, ReduceOp::kSum); },
       "reduce: dsts of f32 cannot hold srcs of i32"},
      {[](PlanBuilder& b) {
         const Ref out = b.out();
         b.Reduce(std::vector<Ref>{out, out.Elements(0, 8)}, std::vector<Ref>{b.in()}, ReduceOp::kSum);
       },
       "reduce: dsts[1] overlaps dsts[0]"},
      {[](PlanBuilder& b) { b.Reduce(b.out(), {b.in()}, ReduceOp{99}); }, "reduce: op 99 does not exist"},
      {[](PlanBuilder& b) { b.Scratch(DType{99}, 8); }, "scratch: dtype 99 does not exist"},
      {[](PlanBuilder& b) { b.Send(0, {.space = Space::kOut, .dtype = DType{99}}); }, "dtype 99 does not exist"},
      {[](PlanBuilder& b) { b.Scale(b.out(), b.in(), 0); }, "scale: divisor 0"},
      {[](PlanBuilder& b) { b.Reduce(b.out(), {b.in()}, ReduceOp::kBitwiseOr); },
       "reduce: op bor is not defined for f32; valid for f32: sum, avg, min, max, prod, premul_sum"},
      {[](PlanBuilder& b) { b.Reduce(b.out(), {b.in()}, ReduceOp::kPremulSum); },
       "reduce: op premul_sum cannot be used; write the products with ScaleByFactor"},
      {[](PlanBuilder& b) { b.Copy(b.out(), b.Scratch(DType::kC64, 8)); }, "copy: c64 cannot be converted into f32"},
      {[](PlanBuilder& b) {
         const Ref truths = b.Scratch(DType::kBool, 8);
         b.Scale(truths, truths, 2);
       },
       "scale: bool cannot be divided"},
      {[](PlanBuilder& b) {
         const Ref integers = b.Scratch(DType::kI32, 8);
         b.ScaleByFactor(integers, integers);
       },
       "scale: i32 cannot be multiplied by the factor of a call"},
      {[](PlanBuilder& b) { b.WaitAll(); }, "wait: WaitAll and WaitFor need a Signal"},
      {[](PlanBuilder& b) { b.Scratch(DType::kF32, -1); }, "scratch: count -1"},
      {[](PlanBuilder& b) { b.Copy(b.out(), b.Residual("residual", DType::kF32, 8).At(0)); },
       "state of a peer is not mapped"},
      {[](PlanBuilder& b) {
         b.Residual("same", DType::kF32, 8);
         b.Residual("same", DType::kF32, 8);
       },
       "state 'same': names must be unique"},
      {[](PlanBuilder& b) { b.Replica("theirs", 4, DType::kF32, 8); }, "a replica of rank 4, which must be in 0…3"},
      {[](PlanBuilder& b) { b.Combine(b.out(), {b.in()}, {}); }, "combine: 0 coefficients for 1 srcs"},
      {[](PlanBuilder& b) {
         b.Combine(b.out(), {b.Scratch(DType::kF16, 8)}, {{1, 1}});
       },
       "combine: dst and srcs must be of one floating dtype"},
      {[](PlanBuilder& b) {
         b.PromiseMixing({0.5, 0.5});
       },
       "mixing has 2 weights, must have one per rank, 4"},
      {[](PlanBuilder& b) {
         b.WriteBy("all_reduce:mine", [](PlanBuilder& part) { part.Residual("lost", DType::kF32, 8); });
       },
       "schedule all_reduce:mine keeps state or promises a mix"},
      {[](PlanBuilder& b) {
         b.WriteBy("all_reduce:mine", [](PlanBuilder& part) { part.PromiseMixing({0, 1, 0, 0}); });
       },
       "schedule all_reduce:mine keeps state or promises a mix"},
      {[](PlanBuilder& b) { b.Within({.count = 9}, b.in(), b.out(), [](PlanBuilder&) {}); },
       "Within all_reduce f32 sum count=9: in has 8 and out 8 elements, must have 9 and 9"},
      {[](PlanBuilder& b) {
         b.WithinGroup({0, 2}, {.count = 8}, b.in(), b.out(), [](PlanBuilder&) {});
       },
       "WithinGroup: group must contain rank 1"},
      {[](PlanBuilder& b) {
         b.WithinGroup({1, 4}, {.count = 8}, b.in(), b.out(), [](PlanBuilder&) {});
       },
       "WithinGroup: group has rank 4, which must be in 0…3"},
      {[](PlanBuilder& b) {
         b.WithinGroup({1, 2, 2}, {.count = 8}, b.in(), b.out(), [](PlanBuilder&) {});
       },
       "WithinGroup: group has rank 2 twice"},
      {[](PlanBuilder& b) { b.Encode(b.Scratch(DType::kU8, 8), b.in(), {}); }, "encode: codec is null"},
  };
  for (const Row& row : rows) {
    PlanBuilder b = Builder();
    b.Send(0, b.in());
    row.author(b);
    b.Send(7, b.in());  // only the first mistake is reported
    const absl::Status status = std::move(b).Build().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.error));
    EXPECT_THAT(std::string(status.message()), HasSubstr("test, rank 1 of 4, step 1"));
  }
}

TEST(PlanBuilderTest, InAGroupPeersArePlaces) {
  PlanBuilder b = Builder();  // rank 1 of 4
  const CollectiveSpec part = {.op = ReduceOp::kAvg, .count = 8};
  b.WithinGroup({3, 1}, part, b.in(), b.out(), [&](PlanBuilder& inner) {
    EXPECT_EQ(inner.rank(), 1);
    EXPECT_EQ(inner.size(), 2);
    EXPECT_EQ(inner.world_size(), 4);
    inner.Send(0, inner.in());
    inner.Reduce(inner.out(), {inner.in()}, ReduceOp::kAvg);
  });
  EXPECT_EQ(b.rank(), 1);
  EXPECT_EQ(b.size(), 4);
  const Plan plan = Built(b);
  EXPECT_EQ(plan.steps[0].peer, 3);
  EXPECT_EQ(plan.steps[1].divisor, 4);
}

TEST(PlanBuilderTest, APartIsWrittenAsIfItWereAPlan) {
  PlanBuilder b = Builder();
  const Ref narrow = b.Scratch(DType::kBF16, 8);
  b.Copy(narrow, b.in());
  const CollectiveSpec part = {.dtype = DType::kBF16, .op = ReduceOp::kMax, .count = 8, .in_place = true};
  b.Within(part, narrow, narrow, [&](PlanBuilder& inner) {
    EXPECT_EQ(inner.spec(), part);
    EXPECT_EQ(inner.in(), narrow);
    EXPECT_EQ(inner.out(), narrow);
    inner.Send(0, inner.in());
  });
  EXPECT_EQ(b.spec().dtype, DType::kF32);
  b.Copy(b.out(), narrow);
  const Plan plan = Built(b);
  EXPECT_EQ(plan.spec.dtype, DType::kF32);
  EXPECT_EQ(WireBytes(plan), 16);
}

// The plan may read the input of a part again, also where the input is scratch.
TEST(PlanBuilderTest, APartThatReducesScratchLeavesItsInput) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const CollectiveSpec reduce = {.collective = Collective::kReduce, .dtype = dtype, .count = 8};
    for (const Schedule* const schedule : AllSchedules()) {
      for (Rank rank = 0; rank < 7; ++rank) {
        if (schedule->collective != reduce.collective || !schedule->supports(reduce, 7, {}).ok()) continue;
        PlanBuilder b("test", reduce, rank, 7, {});
        const Ref kept = b.Scratch(DType::kF32, 8);
        b.Copy(kept, b.in());
        b.Within(reduce, kept, b.out(), [&](PlanBuilder& part) { BuildPart(*schedule, part); });
        const Plan plan = Built(b);
        for (std::size_t step = 1; step < plan.steps.size(); ++step) {
          for (const Ref& dst : plan.dsts(plan.steps[step])) {
            EXPECT_FALSE(dst.space == kept.space && dst.offset < kept.offset + kept.bytes &&
                         kept.offset < dst.offset + dst.bytes)
                << schedule->name << " of " << Name(dtype) << ", rank " << rank << ", step " << step;
          }
        }
      }
    }
  }
}

TEST(PlanBuilderTest, MeansAreDividedByTheNumberOfSources) {
  PlanBuilder b = Builder();
  b.Mean(b.out(), {b.in(), b.Scratch(DType::kF32, 8)});
  const Plan plan = Built(b);
  EXPECT_EQ(plan.steps[0].kind, StepKind::kReduce);
  EXPECT_EQ(plan.steps[0].divisor, 2);
}

TEST(PlanBuilderTest, PeersMemoryNeedsMapping) {
  for (const auto& author : std::vector<std::function<void(PlanBuilder&)>>{
           [](PlanBuilder& b) { b.Copy(b.out(), b.in().At(0)); }, [](PlanBuilder& b) { b.Signal(); },
           [](PlanBuilder& b) { b.Wait(0); }, [](PlanBuilder& b) { b.WaitAll(); }}) {
    PlanBuilder b = Builder({.count = 8}, {});
    author(b);
    EXPECT_THAT(std::string(std::move(b).Build().status().message()), HasSubstr("options.peers_mapped is false"));
  }
}

TEST(PlanBuilderTest, OnlyPeersOnTheSameNodeAreMapped) {
  for (const auto& author : std::vector<std::function<void(PlanBuilder&)>>{
           [](PlanBuilder& b) { b.Copy(b.out(), b.in().At(2)); }, [](PlanBuilder& b) { b.Wait(2); },
           [](PlanBuilder& b) { b.SignalAfter({b.in().At(2)}); },
           [](PlanBuilder& b) {
             b.Signal();
             b.WaitFor({2});
           }}) {
    PlanBuilder b("test", {.count = 8}, 0, 3, {.peers_mapped = true, .nodes = {7, 7, 4}});
    b.Signal();
    b.Wait(1);
    b.Copy(b.out(), b.in().At(1));
    author(b);
    EXPECT_THAT(std::string(std::move(b).Build().status().message()), HasSubstr("peer 2 is on another node"));
  }
}

// The signal does not wait for the message, which has nothing to do with what the signal tells.
TEST(PlanBuilderTest, ASignalMayFollowSomeStepsOnly) {
  PlanBuilder b = Builder({.count = 8}, kMapped);
  const Ref slot = b.Scratch(DType::kF32, 8);
  const Ref other = b.Scratch(DType::kF32, 8);
  b.Copy(slot.Elements(0, 2), b.in().Elements(0, 2));  // 0
  b.Recv(0, other);                                    // 1
  b.SignalAfter({slot});                               // 2
  b.Copy(slot.Elements(4, 4), b.in().Elements(0, 4));  // 3
  b.SignalAfter({slot.Elements(4, 2)});                // 4
  b.Wait(0);                                           // 5
  b.Copy(b.out(), slot.At(0));                         // 6
  b.SignalAfter({slot.At(0), slot.Elements(2, 2)});    // 7
  b.Signal();                                          // 8
  const Plan plan = Built(b);
  EXPECT_EQ(Deps(plan, 2), std::vector<StepId>({0}));
  EXPECT_EQ(Deps(plan, 4), std::vector<StepId>({2, 3}));
  EXPECT_EQ(Deps(plan, 7), std::vector<StepId>({4, 6}));
  EXPECT_EQ(Deps(plan, 8), std::vector<StepId>({1, 7}));
}

TEST(PlanBuilderTest, BadSpecAndOptionsAreErrorsOfBuild) {
  PlanBuilder spec = Builder({.count = -1});
  spec.Send(0, spec.in());
  EXPECT_THAT(std::string(std::move(spec).Build().status().message()), HasSubstr("count -1"));
  PlanBuilder options = Builder({.count = 1}, {.segment_bytes = 0});
  options.Send(0, options.in());
  EXPECT_THAT(std::string(std::move(options).Build().status().message()), HasSubstr("segment_bytes 0"));
  PlanBuilder nodes = Builder({.count = 1}, {.nodes = {0}});
  EXPECT_THAT(std::string(std::move(nodes).Build().status().message()),
              HasSubstr("options.nodes names the nodes of 1"));
}

// Authors compute with segments and nodes: with bad ones they are not asked to write anything.
TEST(PlanBuilderTest, BadOptionsReachNoAuthor) {
  const PlanOptions short_segments = {.segment_bytes = 2};
  for (const char* const name : {"low_precision_decentralized", "bytegrad", "gradient_allreduce"}) {
    const absl::Status status =
        BuildPlan(*ParseStrategy(name), DType::kF32, 100, /*rank=*/0, /*size=*/4, short_segments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name << ": " << status;
  }
  const CollectiveSpec reduce{.collective = Collective::kReduce, .count = 100};
  const Schedule& binomial = **FindSchedule(Collective::kReduce, "binomial");
  EXPECT_THAT(std::string(BuildPlan(binomial, reduce, 0, 4, short_segments).status().message()),
              HasSubstr("options.segment_bytes 2 must be 8 or more"));
  const Schedule& hierarchical = **FindSchedule(Collective::kAllReduce, "hierarchical");
  const absl::Status few_nodes =
      BuildPlan(hierarchical, {.count = 100}, /*rank=*/5, /*size=*/8, {.peers_mapped = true, .nodes = {0, 0, 1, 1}})
          .status();
  EXPECT_THAT(std::string(few_nodes.message()), HasSubstr("options.nodes names the nodes of 4 ranks, not of 8"));
}

}  // namespace
}  // namespace tutti
