// Faults of mixing and state that the verifier must name, each in the smallest plan that has the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/algorithm.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Author = std::function<void(PlanBuilder&)>;

constexpr std::int64_t kCount = 64;

std::string ErrorOf(int size, const Author& author, bool in_place = false) {
  std::vector<Plan> plans;
  const CollectiveSpec spec = {.op = ReduceOp::kAvg, .count = kCount, .in_place = in_place};
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder b("test", spec, rank, size, {});
    author(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plans.push_back(*std::move(plan));
  }
  return std::string(Verify(plans).message());
}

CodecChoice Codec() { return {*FindCodec("uint8_block"), {}}; }

// Writes a mix of two ranks: out ← first · own input + second · the other's input.
void MixOfTwo(PlanBuilder& b, double first, double second) {
  const Ref theirs = b.Scratch(DType::kF32, kCount);
  b.Send(1 - b.rank(), b.in());
  b.Recv(1 - b.rank(), theirs);
  b.Combine(b.out(), {b.in(), theirs}, {{first, 1}, {second, 1}});
}

TEST(VerifyMixing, AcceptsWhatIsPromised) {
  EXPECT_EQ(
      ErrorOf(2,
              [](PlanBuilder& b) {
                b.PromiseMixing(b.rank() == 0 ? std::vector<double>{0.75, 0.25} : std::vector<double>{0.25, 0.75});
                MixOfTwo(b, 0.75, 0.25);
              }),
      "");
}

TEST(VerifyMixing, OtherWeightsThanPromisedAreAFault) {
  const std::string error = ErrorOf(2, [](PlanBuilder& b) {
    b.PromiseMixing({0.5, 0.5});
    MixOfTwo(b, 0.5, 0.25);
  });
  EXPECT_THAT(error, HasSubstr("element 0 of all ranks times the weights 0.5, 0.5 is expected"));
}

TEST(VerifyMixing, AnInputMayBeReachedAlongVeryManyPaths) {
  // Rounds of gossip: out <- out/2 + left/4 + right/4. Rank `from` reaches rank `to` by 3^rounds paths on the ring.
  constexpr int kSize = 6;
  constexpr int kRounds = 24;
  std::vector<double> shares(kSize);  // by distance
  shares[0] = 1;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> before = shares;
    for (int at = 0; at < kSize; ++at) {
      shares[at] = before[at] / 2 + before[(at + 1) % kSize] / 4 + before[(at + kSize - 1) % kSize] / 4;
    }
  }
  const auto gossip = [&](int rounds) {
    return [&, rounds](PlanBuilder& b) {
      const Rank neighbours[] = {(b.rank() + kSize - 1) % kSize, (b.rank() + 1) % kSize};
      const Ref theirs[] = {b.Scratch(DType::kF32, kCount), b.Scratch(DType::kF32, kCount)};
      b.Copy(b.out(), b.in());
      for (int round = 0; round < rounds; ++round) {
        for (int i : {0, 1}) b.Send(neighbours[i], b.out());
        for (int i : {1, 0}) b.Recv(neighbours[i], theirs[i]);
        b.Combine(b.out(), {b.out(), theirs[0], theirs[1]}, {{1, 2}, {1, 4}, {1, 4}});
      }
      std::vector<double> row(kSize);
      for (Rank rank = 0; rank < kSize; ++rank) row[rank] = shares[(rank - b.rank() + kSize) % kSize];
      b.PromiseMixing(row);
    };
  };
  EXPECT_EQ(ErrorOf(kSize, gossip(kRounds)), "");
  EXPECT_THAT(ErrorOf(kSize, gossip(2)), HasSubstr("of all ranks times the weights"));
}

TEST(VerifyMixing, ASmallWeightIsAWeight) {
  const auto with = [](double weight) {
    return [weight](PlanBuilder& b) {
      b.PromiseMixing(b.rank() == 0 ? std::vector<double>{1 - 1e-10, 1e-10} : std::vector<double>{1e-10, 1 - 1e-10});
      MixOfTwo(b, 1 - weight, weight);
    };
  };
  EXPECT_EQ(ErrorOf(2, with(1e-10)), "");
  EXPECT_THAT(ErrorOf(2, with(0)), HasSubstr("is expected"));
}

TEST(VerifyMixing, WeightsOfAWorldAreDoublyStochastic) {
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.5, 0.4});
                        MixOfTwo(b, 0.5, 0.4);
                      }),
              HasSubstr("rank 0: the weights of its mixing sum to 0.9, must be 1"));
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.75, 0.25});
                        MixOfTwo(b, b.rank() == 0 ? 0.75 : 0.25, b.rank() == 0 ? 0.25 : 0.75);
                      }),
              HasSubstr("the weights of rank 0 in the mixing of all sum to 1.5, must be 1"));
}

// Writes values ← input + residual, or what else a message is to hold.
using Adder = std::function<void(const Ref& values, const Ref& residual)>;
// Writes what becomes of a residual that holds what the message of `values` decodes to.
using Keeper = std::function<void(const Ref& values, const Ref& residual)>;

// Every rank sends every rank its encoded values and takes the average of all.
void TellAll(PlanBuilder& b, const Adder& add, const Keeper& keep) {
  const Ref residual = b.Residual("residual", DType::kF32, kCount, /*first_element=*/0, /*divisor=*/b.size());
  const Ref values = b.Scratch(DType::kF32, kCount);
  add(values, residual);
  std::vector<Ref> messages;
  for (Rank rank = 0; rank < b.size(); ++rank) messages.push_back(b.Message(kCount, Codec()));
  b.Encode(messages[b.rank()], values, Codec());
  b.Decode(residual, messages[b.rank()], Codec());
  keep(values, residual);
  for (Rank peer = 0; peer < b.size(); ++peer) {
    if (peer == b.rank()) continue;
    b.Send(peer, messages[b.rank()]);
    b.Recv(peer, messages[peer]);
  }
  for (Rank rank = 0; rank < b.size(); ++rank) b.Decode(b.out(), messages[rank], Codec(), rank > 0);
  b.Scale(b.out(), b.out(), b.size());
}

Adder AddsOnce(PlanBuilder& b) {
  return [&b](const Ref& values, const Ref& residual) { b.Reduce(values, {b.in(), residual}, ReduceOp::kSum); };
}

Keeper KeepsWhatIsLost(PlanBuilder& b) {
  return [&b](const Ref& values, const Ref& residual) { b.Remainder(residual, values, residual); };
}

TEST(VerifyResidual, IsWhatAMessageLost) {
  EXPECT_EQ(ErrorOf(3, [](PlanBuilder& b) { TellAll(b, AddsOnce(b), KeepsWhatIsLost(b)); }), "");
}

TEST(VerifyResidual, AnythingElseIsAFault) {
  const std::string expected = "ends with the residual residual: ";
  EXPECT_THAT(ErrorOf(2, [](PlanBuilder& b) { TellAll(b, AddsOnce(b), [](const Ref&, const Ref&) {}); }),
              HasSubstr(expected));
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        TellAll(b, AddsOnce(b),
                                [&](const Ref&, const Ref& residual) { b.Remainder(residual, b.in(), residual); });
                      }),
              HasSubstr(expected));
  // Without `finite` one NaN would stay in the residual for ever.
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        TellAll(b, AddsOnce(b), [&](const Ref& values, const Ref& residual) {
                          b.Combine(residual, {values, residual}, {{1, 1}, {-1, 1}});
                        });
                      }),
              HasSubstr(expected));
}

TEST(VerifyResidual, IsAddedToItsMessageOnce) {
  const auto error_of = [](const std::function<void(PlanBuilder&, const Ref& values, const Ref& residual)>& add) {
    return ErrorOf(2, [&](PlanBuilder& b) {
      TellAll(
          b, [&](const Ref& values, const Ref& residual) { add(b, values, residual); }, KeepsWhatIsLost(b));
    });
  };
  EXPECT_THAT(error_of([](PlanBuilder& b, const Ref& values, const Ref& residual) {
                b.Reduce(values, {b.in(), residual, residual}, ReduceOp::kSum);
              }),
              HasSubstr("ends with the residual residual: "));
  for (const double factor : {1, -1, 2}) {
    EXPECT_THAT(error_of([factor](PlanBuilder& b, const Ref& values, const Ref& residual) {
                  b.Combine(values, {b.in(), residual}, {{1, 1}, {factor, 1}});
                  b.Reduce(values, {values, residual}, ReduceOp::kSum);
                }),
                HasSubstr("a residual (state) may only be the last term of the message whose loss it becomes"));
  }
}

// Every rank sends every rank the two halves of its input in two messages, one after the other. `add` writes the values
// of a message, given both residuals.
std::string ErrorOfHalves(
    const std::function<void(PlanBuilder&, int half, const Ref& values, const std::vector<Ref>& residuals)>& add) {
  return ErrorOf(2, [&](PlanBuilder& b) {
    const std::int64_t count = kCount / 2;
    const std::vector<Ref> residuals = {b.Residual("first", DType::kF32, count, 0, b.size()),
                                        b.Residual("second", DType::kF32, count, count, b.size())};
    const std::vector<Ref> values = {b.Scratch(DType::kF32, count), b.Scratch(DType::kF32, count)};
    for (int half : {0, 1}) add(b, half, values[half], residuals);
    for (int half : {0, 1}) {
      const Ref sent = b.Message(count, Codec());
      const Ref received = b.Message(count, Codec());
      b.Encode(sent, values[half], Codec());
      b.Decode(residuals[half], sent, Codec());
      b.Remainder(residuals[half], values[half], residuals[half]);
      b.Send(1 - b.rank(), sent);
      b.Recv(1 - b.rank(), received);
      const Ref out = b.out().Elements(half * count, count);
      b.Decode(out, b.rank() == 0 ? sent : received, Codec());
      b.Decode(out, b.rank() == 0 ? received : sent, Codec(), true);
      b.Scale(out, out, 2);
    }
  });
}

TEST(VerifyResidual, IsAddedToNoOtherMessage) {
  const auto in_half = [](PlanBuilder& b, int half) { return b.in().Elements(half * kCount / 2, kCount / 2); };
  EXPECT_EQ(ErrorOfHalves([&](PlanBuilder& b, int half, const Ref& values, const std::vector<Ref>& residuals) {
              b.Reduce(values, {in_half(b, half), residuals[half]}, ReduceOp::kSum);
            }),
            "");
  EXPECT_THAT(ErrorOfHalves([&](PlanBuilder& b, int half, const Ref& values, const std::vector<Ref>& residuals) {
                std::vector<Ref> terms = {in_half(b, half), residuals[half]};
                if (half == 1) terms.insert(terms.begin() + 1, residuals[0]);
                b.Reduce(values, terms, ReduceOp::kSum);
              }),
              HasSubstr("element 32 of avg of element 32 of all 2 ranks is expected, found "));
}

// The residual becomes what another message of the same values loses.
TEST(VerifyResidual, IsWhatTheMessageLostThatWasSent) {
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        TellAll(b, AddsOnce(b), [&](const Ref& values, const Ref& residual) {
                          const CodecChoice other = {*FindCodec("fp16"), {}};
                          const Ref message = b.Message(kCount, other);
                          b.Encode(message, values, other);
                          b.Decode(residual, message, other);
                          b.Remainder(residual, values, residual);
                        });
                      }),
              HasSubstr("may only be the last term of the message whose loss it becomes"));
}

TEST(VerifyResidual, ReachesTheOutputOnlyThroughACodec) {
  EXPECT_THAT(ErrorOf(1,
                      [](PlanBuilder& b) {
                        const Ref before = b.Scratch(DType::kF32, kCount);
                        TellAll(
                            b,
                            [&](const Ref& values, const Ref& residual) {
                              b.Copy(before, residual);
                              b.Reduce(values, {b.in(), residual}, ReduceOp::kSum);
                            },
                            KeepsWhatIsLost(b));
                        b.Reduce(b.out(), {b.out(), before}, ReduceOp::kSum);
                      }),
              HasSubstr("is expected, found sum(decoded(sum(in@0[0], state@0[0])), state@0[0])"));
}

TEST(VerifyReplica, AllHoldersAgreeWithItsOwner) {
  const auto exchange = [](PlanBuilder& b, bool forgetful) {
    const Rank peer = 1 - b.rank();
    const Ref own = b.Replica("own", b.rank(), DType::kF32, kCount);
    const Ref theirs = b.Replica("theirs", peer, DType::kF32, kCount);
    const Ref difference = b.Scratch(DType::kF32, kCount);
    b.PromiseMixing({0.5, 0.5});
    b.Combine(difference, {b.in(), theirs, own}, {{1, 1}, {1, 2}, {-3, 2}});
    const std::int64_t bytes = Codec().codec->encoded_bytes(kCount, {});
    const Ref sent = b.Scratch(DType::kU8, bytes);
    const Ref received = b.Scratch(DType::kU8, bytes);
    b.Encode(sent, difference, Codec());
    b.Send(peer, sent);
    b.Recv(peer, received);
    b.Decode(own, sent, Codec(), true);
    if (!forgetful) b.Decode(theirs, received, Codec(), true);
    b.Copy(b.out(), own);
  };
  EXPECT_EQ(ErrorOf(2, [&](PlanBuilder& b) { exchange(b, false); }), "");
  EXPECT_THAT(ErrorOf(2, [&](PlanBuilder& b) { exchange(b, b.rank() == 1); }),
              HasSubstr("rank 1 ends with the replica theirs: replica of 0[0]; rank 0 itself has"));
}

// The inputs alone have the changes that the training has made since the last run.
TEST(VerifyReplica, ReplicasMayNotStandForTheChangesOfInputs) {
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.5, 0.5});
                        const Ref own = b.Replica("own", b.rank(), DType::kF32, kCount);
                        const Ref theirs = b.Replica("theirs", 1 - b.rank(), DType::kF32, kCount);
                        b.Combine(b.out(), {own, theirs}, {{1, 2}, {1, 2}});
                        b.Combine(own, {b.out()}, {{1, 1}});
                      }),
              HasSubstr("ends with the replica own: "));
  const auto difference_of = [](std::vector<Coefficient> coefficients) {
    return [coefficients](PlanBuilder& b) {
      b.PromiseMixing({0.5, 0.5});
      const Ref own = b.Replica("own", b.rank(), DType::kF32, kCount);
      const Ref theirs = b.Replica("theirs", 1 - b.rank(), DType::kF32, kCount);
      const Ref difference = b.Scratch(DType::kF32, kCount);
      const Ref received = b.Scratch(DType::kF32, kCount);
      const bool reads_input = coefficients.size() == 3;
      b.Combine(difference, reads_input ? std::vector<Ref>{theirs, own, b.in()} : std::vector<Ref>{theirs, own},
                coefficients);
      b.Send(1 - b.rank(), difference);
      b.Recv(1 - b.rank(), received);
      b.Reduce(own, {own, difference}, ReduceOp::kSum);
      b.Reduce(theirs, {theirs, received}, ReduceOp::kSum);
      b.Copy(b.out(), own);
    };
  };
  EXPECT_EQ(ErrorOf(2, difference_of({{1, 2}, {-3, 2}, {1, 1}})), "");
  EXPECT_THAT(ErrorOf(2, difference_of({{1, 2}, {-1, 2}})),
              HasSubstr("the shares of replicas sum to 1, must sum to 0, for else changes of the weights"));
  EXPECT_THAT(ErrorOf(2, difference_of({{1, 2}, {-1, 1}, {1, 2}})),
              HasSubstr("the shares of replicas sum to 0.5, must sum to 0"));
}

TEST(VerifyReplica, ThatOfTheRankItselfIsItsOutput) {
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.5, 0.5});
                        b.Replica("own", b.rank(), DType::kF32, kCount);
                        MixOfTwo(b, 0.5, 0.5);
                      }),
              HasSubstr("rank 0 ends with the replica own: replica of 0[0], not the output, which has combine("));
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.5, 0.5});
                        const Ref own = b.Replica("own", b.rank(), DType::kF32, kCount / 2);
                        MixOfTwo(b, 0.5, 0.5);
                        b.Copy(own, b.out().Elements(0, kCount / 2));
                      }),
              HasSubstr("rank 0 ends with the replica own: "));
}

TEST(VerifyReplica, ItsOwnerKeepsOne) {
  EXPECT_THAT(ErrorOf(2,
                      [](PlanBuilder& b) {
                        b.PromiseMixing({0.5, 0.5});
                        MixOfTwo(b, 0.5, 0.5);
                        b.Replica("theirs", 1 - b.rank(), DType::kF32, kCount);
                      }),
              HasSubstr("keeps no replica of its own weights"));
}

TEST(VerifyState, EveryByteBelongsToOneRange) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    plans.push_back(*BuildPlan(*ParseStrategy("bytegrad:error_feedback=true"), DType::kF32, 5000, rank, 2, {}));
  }
  ASSERT_TRUE(Verify(plans).ok()) << Verify(plans);
  std::vector<Plan> shifted = plans;
  shifted[1].states[1].range.offset += 4;
  EXPECT_FALSE(Verify(shifted).ok());
  std::vector<Plan> forgotten = plans;
  forgotten[0].states.pop_back();
  EXPECT_THAT(std::string(Verify(forgotten).message()), HasSubstr("lies in no state"));
}

TEST(VerifyState, AResidualBelongsToTheElementsThatItNames) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    plans.push_back(*BuildPlan(*ParseStrategy("bytegrad:error_feedback=true"), DType::kF32, 5000, rank, 3, {}));
  }
  ASSERT_EQ(Verify(plans), absl::OkStatus());
  const auto error_with = [&](const std::function<void(std::vector<StateRange>&)>& change) {
    std::vector<Plan> changed = plans;
    change(changed[1].states);
    return std::string(Verify(changed).message());
  };
  // The states are "gradient", of the whole bucket, and "sum", of the rank's own chunk.
  EXPECT_THAT(error_with([](auto& states) { states[1].first_element += 1; }),
              HasSubstr("of the bucket (StateRange::first_element), but its message of other elements"));
  EXPECT_THAT(error_with([](auto& states) { states[0].first_element += 1; }),
              HasSubstr("rank 1: residual gradient: first_element 1 must be in 0…0, since the bucket has 5000 elements "
                        "and the residual 5000"));
  EXPECT_THAT(error_with([](auto& states) { states[1].first_element = -1; }), HasSubstr("first_element -1 must be in"));
  EXPECT_THAT(error_with([](auto& states) { states[1].divisor = 2; }),
              HasSubstr("the divisor of a residual (state) is 2, must be 1: "));
  EXPECT_THAT(error_with([](auto& states) { states[0].divisor = 1; }),
              HasSubstr("the divisor of a residual (state) is 1, must be 3: "));
  EXPECT_THAT(error_with([](auto& states) { states[0].divisor = 0; }), HasSubstr("divisor 0 must be at least 1"));
  EXPECT_THAT(error_with([](auto& states) { states[0].name = states[1].name; }),
              HasSubstr("rank 1: residual sum: the name must be that of one state"));
}

TEST(VerifyStateTest, AStateHoldsWholeElementsOfATypeThatExists) {
  const auto error = [](DType dtype, std::int64_t offset, StateKind kind) {
    PlanBuilder b("test", {.count = 4}, 0, 1, {});
    b.Copy(b.out(), b.in());
    Plan plan = *std::move(b).Build();
    plan.state_bytes = 8;
    plan.states = {{.name = "r",
                    .kind = kind,
                    .of = kind == StateKind::kReplica ? 0 : kSelf,
                    .range = {.space = Space::kState, .dtype = dtype, .offset = offset, .bytes = 4}}};
    return std::string(Verify({plan}).message());
  };
  for (const StateKind kind : {StateKind::kResidual, StateKind::kReplica}) {
    EXPECT_THAT(error(static_cast<DType>(200), 0, kind), HasSubstr("r: a ref has dtype 200, which is none"));
    EXPECT_THAT(error(DType::kF32, 2, kind), HasSubstr("both ends must be multiples of 4 bytes, the size of f32"));
  }
}

}  // namespace
}  // namespace tutti
