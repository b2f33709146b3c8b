#include "kernels/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/element_values.h"
#include "tutti/dtype.h"

namespace tutti::kernels {
namespace {

constexpr std::int64_t kGuard = 64;  // bytes on either side of every operand, which must stay as they were

// `count` elements of `dtype` in memory that starts `offset` elements past a cache line.
class Operand {
 public:
  Operand(DType dtype, std::int64_t count, std::int64_t offset)
      : dtype_(dtype), count_(count), memory_(Bytes() + offset * SizeOf(dtype) + 3 * kGuard, 0xA5) {
    auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + kGuard);
    address = (address + kGuard - 1) / kGuard * kGuard + static_cast<std::uintptr_t>(offset * SizeOf(dtype));
    data_ = reinterpret_cast<std::uint8_t*>(address);
  }

  void* data() { return data_; }
  void Set(std::int64_t i, Number value) { StoreNumber(dtype_, data_, i, value); }
  Number Get(std::int64_t i) const { return LoadNumber(dtype_, data_, i); }
  long double Real(std::int64_t i) const { return LoadElement(dtype_, data_, i); }
  // Fills the operand with small integers; a bool is any byte.
  void Randomize(std::mt19937& random) {
    std::uniform_int_distribution<int> small(IsUnsigned() ? 0 : -9, 9);
    constexpr int kBytes[] = {0, 0, 1, 2, 128, 255};
    std::uniform_int_distribution<int> byte(0, 5);
    for (std::int64_t i = 0; i < count_; ++i) {
      if (dtype_ == DType::kBool) {
        Set(i, kBytes[byte(random)]);
      } else {
        Set(i, {static_cast<long double>(small(random)), static_cast<long double>(small(random))});
      }
    }
  }
  bool GuardsAreIntact() const {
    const auto untouched = [](std::uint8_t byte) { return byte == 0xA5; };
    return std::all_of(memory_.data(), static_cast<const std::uint8_t*>(data_), untouched) &&
           std::all_of(static_cast<const std::uint8_t*>(data_) + Bytes(), memory_.data() + memory_.size(), untouched);
  }

 private:
  std::int64_t Bytes() const { return count_ * SizeOf(dtype_); }
  bool IsUnsigned() const {
    return dtype_ == DType::kU8 || dtype_ == DType::kU16 || dtype_ == DType::kU32 || dtype_ == DType::kU64;
  }

  DType dtype_;
  std::int64_t count_;
  std::vector<std::uint8_t> memory_;
  std::uint8_t* data_;
};

struct Shape {
  std::int64_t count;
  int num_srcs;
  int num_dsts;
  int misalignment;  // elements; operand k starts k · misalignment elements past a cache line
  bool in_place;     // dst k is src k
};

// Runs one Reduce and compares every destination with the scalar reference.
void CheckReduce(DType dtype, ReduceOp op, const Shape& shape, Stores stores) {
  SCOPED_TRACE(testing::Message() << "count " << shape.count << " srcs " << shape.num_srcs << " dsts " << shape.num_dsts
                                  << " misalignment " << shape.misalignment << " in place " << shape.in_place
                                  << " streaming " << (stores == Stores::kStreaming));
  std::mt19937 random(static_cast<unsigned>(shape.count * 31 + shape.num_srcs));
  const std::int32_t divisor = shape.num_srcs;
  std::vector<Operand> operands;
  std::int64_t offset = 0;
  const int total = shape.num_srcs + (shape.in_place ? 0 : shape.num_dsts);
  for (int k = 0; k < total; ++k, offset += shape.misalignment) {
    operands.emplace_back(dtype, shape.count, offset % (kGuard / SizeOf(dtype)));
  }
  std::vector<const void*> srcs;
  std::vector<void*> dsts;
  for (int s = 0; s < shape.num_srcs; ++s) {
    operands[s].Randomize(random);
    srcs.push_back(operands[s].data());
  }
  for (int k = 0; k < shape.num_dsts; ++k) dsts.push_back(operands[shape.in_place ? k : shape.num_srcs + k].data());

  std::vector<Number> expected(static_cast<std::size_t>(shape.count));
  std::vector<Number> values(static_cast<std::size_t>(shape.num_srcs));
  for (std::int64_t i = 0; i < shape.count; ++i) {
    for (int s = 0; s < shape.num_srcs; ++s) values[s] = operands[s].Get(i);
    expected[i] = ReducedNumber(dtype, op, divisor, values);
  }
  Reduce(dtype, op, divisor, dsts, srcs, shape.count, stores);
  for (int k = 0; k < shape.num_dsts; ++k) {
    const Operand& dst = operands[shape.in_place ? k : shape.num_srcs + k];
    for (std::int64_t i = 0; i < shape.count; ++i)
      ASSERT_EQ(dst.Get(i), expected[i]) << "dst " << k << " [" << i << "]";
  }
  for (const Operand& operand : operands) ASSERT_TRUE(operand.GuardsAreIntact());
}

class ReduceTest : public testing::TestWithParam<std::tuple<DType, ReduceOp>> {};

TEST_P(ReduceTest, MatchesScalarReferenceForEveryShape) {
  const auto [dtype, op] = GetParam();
  for (std::int64_t count : {0, 1, 2, 7, 16, 17, 33, 1000, 4099}) {
    for (int num_srcs = 1; num_srcs <= 5; ++num_srcs) {
      for (int num_dsts = 1; num_dsts <= 3; ++num_dsts) {
        for (int misalignment : {0, 1, 3}) {
          for (bool in_place : {false, true}) {
            if (in_place && num_dsts > num_srcs) continue;
            // Loops of long ranges do what those of shorter ranges do, only more often: fewer misalignments are tested.
            if (count >= 1000 && misalignment == 3) continue;
            if (count > 1000 && (num_dsts > 1 || num_srcs % 2 == 0)) continue;
            for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
              CheckReduce(dtype, op, {count, num_srcs, num_dsts, misalignment, in_place}, stores);
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST_P(ReduceTest, StreamsWhenAllDestinationsShareAMisalignment) {
  const auto [dtype, op] = GetParam();
  for (int misalignment : {1, 5}) {
    std::mt19937 random(7);
    Operand src(dtype, 1000, 0), first(dtype, 1000, misalignment), second(dtype, 1000, misalignment);
    src.Randomize(random);
    const void* srcs[] = {src.data(), src.data()};
    void* dsts[] = {first.data(), second.data()};
    Reduce(dtype, op, 2, dsts, srcs, 1000, Stores::kStreaming);
    for (std::int64_t i = 0; i < 1000; ++i) {
      const Number value = src.Get(i);
      const std::vector<Number> values = {value, value};
      ASSERT_EQ(first.Get(i), ReducedNumber(dtype, op, 2, values)) << i;
      ASSERT_EQ(second.Get(i), first.Get(i)) << i;
    }
    EXPECT_TRUE(first.GuardsAreIntact() && second.GuardsAreIntact());
  }
}

std::string CaseName(const testing::TestParamInfo<std::tuple<DType, ReduceOp>>& info) {
  const absl::string_view dtype = Name(std::get<0>(info.param)), op = Name(std::get<1>(info.param));
  return std::string(dtype.data(), dtype.size()) + "_" + std::string(op.data(), op.size());
}

std::vector<std::tuple<DType, ReduceOp>> EveryTypeWithItsOperators() {
  std::vector<std::tuple<DType, ReduceOp>> cases;
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : OpsOf(dtype)) cases.emplace_back(dtype, op);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ReduceTest, testing::ValuesIn(EveryTypeWithItsOperators()), CaseName);

class FloatingReduceTest : public testing::TestWithParam<DType> {};

TEST_P(FloatingReduceTest, NanInAnyOperandReachesTheResult) {
  const long double nan = std::numeric_limits<long double>::quiet_NaN();
  for (ReduceOp op : OpsOf(GetParam())) {
    for (int poisoned = 0; poisoned < 3; ++poisoned) {
      for (std::int64_t count : {1, 200}) {
        std::vector<Operand> operands;
        std::vector<const void*> srcs;
        for (int s = 0; s < 3; ++s) {
          Operand& operand = operands.emplace_back(GetParam(), count, 0);
          for (std::int64_t i = 0; i < count; ++i) operand.Set(i, s == poisoned && i % 3 == 0 ? nan : s + 1);
        }
        for (Operand& operand : operands) srcs.push_back(operand.data());
        Operand result(GetParam(), count, 0);
        void* dst = result.data();
        Reduce(GetParam(), op, 3, {&dst, 1}, srcs, count, Stores::kCached);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(std::isnan(result.Real(i)), i % 3 == 0) << Name(op) << i;
      }
    }
  }
}

TEST_P(FloatingReduceTest, InfinitiesFollowIeee) {
  const long double inf = std::numeric_limits<long double>::infinity();
  Operand a(GetParam(), 4, 0), b(GetParam(), 4, 0), result(GetParam(), 4, 0);
  const long double pairs[4][2] = {{inf, 1}, {-inf, 1}, {inf, -inf}, {-inf, -inf}};
  for (int i = 0; i < 4; ++i) {
    a.Set(i, pairs[i][0]);
    b.Set(i, pairs[i][1]);
  }
  const void* srcs[] = {a.data(), b.data()};
  void* dst = result.data();
  const auto run = [&](ReduceOp op) { Reduce(GetParam(), op, 2, {&dst, 1}, srcs, 4, Stores::kCached); };
  run(ReduceOp::kSum);
  EXPECT_EQ(result.Real(0), inf);
  EXPECT_EQ(result.Real(1), -inf);
  EXPECT_TRUE(std::isnan(result.Real(2)));
  run(ReduceOp::kMin);
  EXPECT_EQ(result.Real(0), 1);
  EXPECT_EQ(result.Real(2), -inf);
  run(ReduceOp::kMax);
  EXPECT_EQ(result.Real(0), inf);
  EXPECT_EQ(result.Real(1), 1);
}

TEST_P(FloatingReduceTest, RoundsEveryElementAlikeWhateverItsPosition) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal(0.0, 1.0);
  constexpr std::int64_t kCount = 131;
  std::vector<Operand> operands;
  std::vector<const void*> srcs;
  for (int s = 0; s < 5; ++s) {
    Operand& operand = operands.emplace_back(GetParam(), kCount, s);
    for (std::int64_t i = 0; i < kCount; ++i) operand.Set(i, normal(random));
  }
  for (Operand& operand : operands) srcs.push_back(operand.data());
  for (ReduceOp op : OpsOf(GetParam())) {
    for (int divisor : {3, 4}) {
      Operand result(GetParam(), kCount, 1);
      void* dst = result.data();
      Reduce(GetParam(), op, divisor, {&dst, 1}, srcs, kCount, Stores::kStreaming);
      for (std::int64_t i = 0; i < kCount; ++i) {
        std::vector<long double> values;
        for (const Operand& operand : operands) values.push_back(operand.Real(i));
        ASSERT_EQ(result.Real(i), ReducedElement(GetParam(), op, divisor, values)) << Name(op) << " [" << i << "]";
      }
    }
  }
}

std::string DTypeName(const testing::TestParamInfo<DType>& info) {
  return std::string(Name(info.param).data(), Name(info.param).size());
}

// The address of the destination is no multiple of the element's size: no element lies where a vector could be stored
// past the cache. The elements are whole vectors, because UBSan takes Highway's loads of single elements for errors.
TEST_P(FloatingReduceTest, TakesMemoryThatIsNotAlignedToItsElements) {
  constexpr std::int64_t kCount = 4096;
  const DType dtype = GetParam();
  for (std::int64_t shift = 1; shift < SizeOf(dtype); ++shift) {
    SCOPED_TRACE(shift);
    const auto bytes = static_cast<std::size_t>(kCount * SizeOf(dtype) + shift);
    std::vector<std::uint8_t> a(bytes), b(bytes), sum(bytes);
    for (std::int64_t i = 0; i < kCount; ++i) {
      StoreElement(dtype, a.data() + shift, i, static_cast<long double>(i % 7 - 3));
      StoreElement(dtype, b.data() + shift, i, static_cast<long double>(i % 5));
    }
    const void* srcs[] = {a.data() + shift, b.data() + shift};
    void* dst = sum.data() + shift;
    Reduce(dtype, ReduceOp::kSum, 1, {&dst, 1}, srcs, kCount, Stores::kStreaming);
    for (std::int64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(LoadElement(dtype, dst, i), static_cast<long double>(i % 7 - 3 + i % 5)) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FloatingReduceTest, testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kBF16),
                         DTypeName);

TEST(ReduceIntegerTest, SumsWrapAroundAndAveragesTruncate) {
  const std::int8_t a[] = {127, -128, -7}, b[] = {1, -1, 0};
  std::int8_t result[3];
  const void* srcs[] = {a, b};
  void* dst = result;
  Reduce(DType::kI8, ReduceOp::kSum, 1, {&dst, 1}, srcs, 3, Stores::kCached);
  EXPECT_EQ(result[0], -128);
  EXPECT_EQ(result[1], 127);
  Reduce(DType::kI8, ReduceOp::kAvg, 2, {&dst, 1}, srcs, 3, Stores::kCached);
  EXPECT_EQ(result[2], -3);
  const std::int64_t big[] = {std::numeric_limits<std::int64_t>::max()}, one[] = {1};
  std::int64_t wide[1];
  const void* wide_srcs[] = {big, one};
  dst = wide;
  Reduce(DType::kI64, ReduceOp::kSum, 1, {&dst, 1}, wide_srcs, 1, Stores::kCached);
  EXPECT_EQ(wide[0], std::numeric_limits<std::int64_t>::min());
}

TEST(ReduceIntegerTest, UnsignedIntegersUseTheirWholeRange) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t a[] = {kMax, 1, 7}, b[] = {1, kMax, kMax - 3};
  std::uint64_t result[3];
  const void* srcs[] = {a, b};
  void* dst = result;
  const auto run = [&](ReduceOp op) { Reduce(DType::kU64, op, 2, {&dst, 1}, srcs, 3, Stores::kCached); };
  run(ReduceOp::kSum);
  EXPECT_THAT(result, testing::ElementsAre(0, 0, 3));
  run(ReduceOp::kMax);
  EXPECT_THAT(result, testing::ElementsAre(kMax, kMax, kMax - 3));
  run(ReduceOp::kMin);
  EXPECT_THAT(result, testing::ElementsAre(1, 1, 7));
  run(ReduceOp::kBitwiseXor);
  EXPECT_THAT(result, testing::ElementsAre(kMax - 1, kMax - 1, kMax - 4));
  const void* large[] = {a};
  Reduce(DType::kU64, ReduceOp::kAvg, 2, {&dst, 1}, large, 3, Stores::kCached);
  EXPECT_THAT(result, testing::ElementsAre(kMax / 2, 0, 3));
}

TEST(ReduceBoolTest, EveryByteButZeroIsTrueAndResultsAreZeroOrOne) {
  const std::uint8_t a[] = {0, 0, 2, 4}, b[] = {0, 255, 0, 2};
  std::uint8_t result[4];
  const void* srcs[] = {a, b};
  void* dst = result;
  const auto run = [&](ReduceOp op) { Reduce(DType::kBool, op, 1, {&dst, 1}, srcs, 4, Stores::kCached); };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitwiseOr}) {
    run(op);
    EXPECT_THAT(result, testing::ElementsAre(0, 1, 1, 1)) << Name(op);
  }
  for (const ReduceOp op : {ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kBitwiseAnd}) {
    run(op);
    EXPECT_THAT(result, testing::ElementsAre(0, 0, 0, 1)) << Name(op);
  }
  run(ReduceOp::kBitwiseXor);
  EXPECT_THAT(result, testing::ElementsAre(0, 1, 1, 0));
}

// Products that are not exact have equal bits wherever in the vector an element lies.
TEST(ReduceComplexTest, ProductsAreRoundedAlikeWhateverTheirPlace) {
  std::mt19937 random(13);
  std::normal_distribution<double> normal(0.0, 1.0);
  constexpr std::int64_t kCount = 131;
  for (const DType dtype : {DType::kC64, DType::kC128}) {
    std::vector<Operand> operands;
    std::vector<const void*> srcs;
    for (int s = 0; s < 4; ++s) {
      Operand& operand = operands.emplace_back(dtype, kCount, s % 3);
      for (std::int64_t i = 0; i < kCount; ++i) operand.Set(i, {normal(random), normal(random)});
    }
    for (Operand& operand : operands) srcs.push_back(operand.data());
    Operand result(dtype, kCount, 1);
    void* dst = result.data();
    Reduce(dtype, ReduceOp::kProd, 1, {&dst, 1}, srcs, kCount, Stores::kCached);
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::vector<Number> values;
      for (const Operand& operand : operands) values.push_back(operand.Get(i));
      ASSERT_EQ(result.Get(i), ReducedNumber(dtype, ReduceOp::kProd, 1, values)) << Name(dtype) << " [" << i << "]";
    }
  }
}

TEST(MultiplyTest, RoundsEveryProductOnceInPlaceAndOut) {
  std::mt19937 random(17);
  std::normal_distribution<double> normal(0.0, 1.0);
  constexpr double kFactor = -1.0 / 3.0;
  for (const DType dtype : kAllDTypes) {
    if (!HasOp(dtype, ReduceOp::kPremulSum)) continue;
    for (const std::int64_t count : {0, 1, 7, 64, 131}) {
      Operand src(dtype, count, 1), out(dtype, count, 2);
      for (std::int64_t i = 0; i < count; ++i) src.Set(i, {normal(random), normal(random)});
      Multiply(dtype, out.data(), src.data(), kFactor, count);
      const bool wide = PartOf(dtype) == DType::kF64;
      const auto product = [&](long double part) -> long double {
        if (wide) return static_cast<double>(part) * kFactor;
        std::uint8_t element[4];
        StoreElement(PartOf(dtype), element, 0, static_cast<float>(part) * static_cast<float>(kFactor));
        return LoadElement(PartOf(dtype), element, 0);
      };
      for (std::int64_t i = 0; i < count; ++i) {
        const Number value = src.Get(i);
        ASSERT_EQ(out.Get(i), Number(product(value.real()), IsComplex(dtype) ? product(value.imag()) : 0))
            << Name(dtype) << " [" << i << "]";
      }
      Multiply(dtype, src.data(), src.data(), kFactor, count);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(src.Get(i), out.Get(i));
      EXPECT_TRUE(src.GuardsAreIntact() && out.GuardsAreIntact());
    }
  }
}

TEST(DivideTest, DividesTrulyOrTruncates) {
  float values[] = {1.0f, -2.0f, 10.0f};
  Divide(DType::kF32, values, values, 3, 3);
  EXPECT_EQ(values[0], 1.0f / 3.0f);
  EXPECT_EQ(values[2], 10.0f / 3.0f);
  const std::int32_t integers[] = {7, -7, 0};
  std::int32_t result[3];
  Divide(DType::kI32, result, integers, 2, 3);
  EXPECT_EQ(result[0], 3);
  EXPECT_EQ(result[1], -3);
}

}  // namespace
}  // namespace tutti::kernels
