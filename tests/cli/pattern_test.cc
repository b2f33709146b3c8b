#include "bindings/cli/pattern.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kCount = 10000;

std::vector<std::byte> Written(Pattern& pattern, int source, std::int64_t first, DType dtype) {
  std::vector<std::byte> data(static_cast<std::size_t>(kCount * SizeOf(dtype)));
  pattern.Write(source, first, kCount, data.data());
  return data;
}

TEST(PatternTest, AcceptsItselfInEveryDTypeAndOp) {
  for (DType dtype : kAllDTypes) {
    for (ReduceOp op : kAllReduceOps) {
      Pattern pattern(dtype, op, 5);
      for (int source : {0, 4, Piece::kReduced}) {
        const std::vector<std::byte> data = Written(pattern, source, 17, dtype);
        EXPECT_EQ(pattern.CountWrong(source, 17, kCount, data.data()), 0) << Name(dtype) << " " << Name(op);
      }
    }
  }
}

TEST(PatternTest, SumsArePlainSums) {
  Pattern pattern(DType::kF32, ReduceOp::kSum, 3);
  std::vector<float> total(kCount), part(kCount), reduced(kCount);
  for (int rank = 0; rank < 3; ++rank) {
    pattern.Write(rank, 0, kCount, reinterpret_cast<std::byte*>(part.data()));
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += part[i];
  }
  pattern.Write(Piece::kReduced, 0, kCount, reinterpret_cast<std::byte*>(reduced.data()));
  EXPECT_EQ(total, reduced);
}

TEST(PatternTest, HalvesAreRightBits) {
  Pattern pattern(DType::kF16, ReduceOp::kMax, 2);
  Pattern same(DType::kI32, ReduceOp::kMax, 2);
  std::vector<std::uint16_t> halves(kCount);
  std::vector<std::int32_t> integers(kCount);
  pattern.Write(0, 0, kCount, reinterpret_cast<std::byte*>(halves.data()));
  same.Write(0, 0, kCount, reinterpret_cast<std::byte*>(integers.data()));
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const int exponent = halves[i] >> 10;
    const double value = exponent == 0 ? 0 : (1024 + (halves[i] & 1023)) * std::pow(2.0, exponent - 25);
    ASSERT_EQ(value, integers[i]);
  }
}

TEST(PatternTest, CountsWrongElementsAndMisplacedOnes) {
  Pattern pattern(DType::kF32, ReduceOp::kSum, 2);
  std::vector<std::byte> data = Written(pattern, 0, 0, DType::kF32);
  data[4 * 100 + 3] ^= std::byte{0x40};
  data[4 * 9999] ^= std::byte{1};
  EXPECT_EQ(pattern.CountWrong(0, 0, kCount, data.data()), 2);
  for (std::int64_t shift : {1, 2, 1024, 4096}) {
    EXPECT_GT(pattern.CountWrong(0, 0, kCount, Written(pattern, 0, shift, DType::kF32).data()), kCount / 2);
  }
  EXPECT_GT(pattern.CountWrong(0, 0, kCount, Written(pattern, 1, 0, DType::kF32).data()), kCount / 2);
}

TEST(PatternTest, KeepsFewTablesInALargeWorld) {
  Pattern pattern(DType::kF32, ReduceOp::kSum, 64);
  EXPECT_EQ(pattern.tables(), 0);
  const std::vector<std::byte> own = Written(pattern, 7, 0, DType::kF32);
  EXPECT_GT(pattern.CountWrong(Piece::kReduced, 0, kCount, own.data()), 0);
  EXPECT_EQ(pattern.tables(), 2) << "an all_reduce needs no others";
  for (int source = 0; source < 64; ++source) Written(pattern, source, 0, DType::kF32);
  EXPECT_LE(pattern.tables(), 16);
  EXPECT_EQ(pattern.CountWrong(7, 0, kCount, own.data()), 0);
}

TEST(PatternTest, KnowsWhatIsNotExact) {
  EXPECT_TRUE(CheckExact(DType::kBF16, ReduceOp::kSum, 256).ok());
  EXPECT_FALSE(CheckExact(DType::kI8, ReduceOp::kSum, 200).ok());
  EXPECT_TRUE(CheckExact(DType::kI8, ReduceOp::kMax, 200).ok());
}

}  // namespace
}  // namespace tutti::cli
