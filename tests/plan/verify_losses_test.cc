// The losses of casts, codecs and integers that the verifier allows, and those that it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/plan/hand_written_plans.h"
#include "tutti/codec.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Integers lose fractions and wrap around: no rounding of floating numbers.
TEST(VerifyLosses, FloatingNumbersAreNotReducedAsIntegers) {
  const auto by = [](DType dtype) {
    return [dtype](PlanBuilder& b) {
      const Ref mine = b.Scratch(dtype, 4);
      const Ref theirs = b.Scratch(dtype, 4);
      b.Copy(mine, b.in());
      b.Send(1 - b.rank(), mine);
      b.Recv(1 - b.rank(), theirs);
      const Ref sum = b.Scratch(dtype, 4);
      b.Reduce(sum, {b.rank() == 0 ? mine : theirs, b.rank() == 0 ? theirs : mine}, ReduceOp::kAvg);
      b.Copy(b.out(), sum);
    };
  };
  const CollectiveSpec spec{.op = ReduceOp::kAvg, .count = 4};
  for (const DType dtype : {DType::kI8, DType::kI32, DType::kI64}) {
    EXPECT_THAT(ErrorOf(spec, 2, by(dtype)), HasSubstr("of all 2 ranks is expected, found f32("));
  }
  for (const DType dtype : {DType::kBF16, DType::kF64}) EXPECT_EQ(ErrorOf(spec, 2, by(dtype)), "");
}

// Casts the elements of `ref` to type `by` and back.
void CastThere(PlanBuilder& b, const Ref& ref, DType by) {
  const Ref cast = b.Scratch(by, ref.count());
  b.Copy(cast, ref);
  b.Copy(ref, cast);
}

TEST(VerifyLosses, NothingOfOneRanksInputMayBeLost) {
  for (const Collective collective :
       {Collective::kBroadcast, Collective::kScatter, Collective::kAllGather, Collective::kAllToAll}) {
    const auto error_by = [&](DType dtype, DType by) {
      return ErrorOf({.collective = collective, .dtype = dtype, .count = 64}, 2, [&](PlanBuilder& b) {
        BuildSelected(b);
        CastThere(b, b.out(), by);
      });
    };
    EXPECT_EQ(error_by(DType::kBF16, DType::kF32), "");
    EXPECT_EQ(error_by(DType::kF16, DType::kF64), "");
    EXPECT_THAT(error_by(DType::kF32, DType::kBF16), HasSubstr("of in@0[0] is expected, found bf16(in@0[0])"));
    const std::string error = ErrorOf({.collective = collective, .count = 64}, 2, [](PlanBuilder& b) {
      BuildSelected(b);
      const CodecChoice codec{*FindCodec("uint8_block"), {}};
      const Ref message = b.Message(b.out().count(), codec);
      b.Encode(message, b.out(), codec);
      b.Decode(b.out(), message, codec);
    });
    EXPECT_THAT(error, HasSubstr("of in@0[0] is expected, found decoded(in@0[0])"));
  }
}

// In place, a rank of a reduce_scatter keeps its input in the blocks of the others.
TEST(VerifyLosses, NothingOfKeptInputMayBeLost) {
  const auto error_by = [](DType by) {
    const CollectiveSpec spec{.collective = Collective::kReduceScatter, .count = 4, .in_place = true};
    return ErrorOf(spec, 2, [&](PlanBuilder& b) {
      BuildSelected(b);
      CastThere(b, b.in().Elements((1 - b.rank()) * 4, 4), by);
    });
  };
  EXPECT_EQ(error_by(DType::kF64), "");
  EXPECT_THAT(error_by(DType::kBF16), HasSubstr("of in@0[4] is expected, found bf16(in@0[4])"));
}

}  // namespace
}  // namespace tutti
