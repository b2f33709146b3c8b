#include "kernels/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reduce.h"

namespace tutti {
namespace {

constexpr Coefficient kThirds[] = {{1, 1}, {1, 3}, {-5, 3}};

template <typename T>
std::vector<T> Values(std::int64_t count, int seed) {
  std::vector<T> values(count);
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(std::sin(static_cast<double>(i * 7 + seed)) * 3);
  return values;
}

template <typename T>
std::vector<T> Combined(DType dtype, const std::vector<std::vector<T>>& srcs, const Coefficient* coefficients,
                        kernels::Results results) {
  std::vector<T> dst(srcs[0].size());
  std::vector<const void*> pointers;
  for (const std::vector<T>& src : srcs) pointers.push_back(src.data());
  kernels::Combine(dtype, dst.data(), pointers, coefficients, static_cast<std::int64_t>(dst.size()), results);
  return dst;
}

// The reference of Combine: every operation is rounded by itself, from left to right.
template <typename T>
T Expected(T a, T b, T c) {
  const T second = b / 3;
  const T scaled = -5 * c;
  const T third = scaled / 3;
  const T sum = a + second;
  return sum + third;
}

template <typename T>
void ExpectExact(DType dtype) {
  for (const std::int64_t count : {0, 1, 3, 7, 8, 15, 16, 33, 1000}) {
    const std::vector<std::vector<T>> srcs = {Values<T>(count, 1), Values<T>(count, 2), Values<T>(count, 3)};
    const std::vector<T> sum = Combined(dtype, srcs, kThirds, kernels::Results::kAll);
    for (std::int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(sum[i], Expected(srcs[0][i], srcs[1][i], srcs[2][i])) << "element " << i << " of " << count;
    }
  }
}

TEST(Combine, RoundsEveryOperationByItself) {
  ExpectExact<float>(DType::kF32);
  ExpectExact<double>(DType::kF64);
}

TEST(Combine, SixteenBitTypesAreComputedInF32AndRoundedOnce) {
  constexpr std::int64_t kCount = 37;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<std::vector<float>> wide = {Values<float>(kCount, 1), Values<float>(kCount, 2),
                                            Values<float>(kCount, 3)};
    std::vector<std::vector<std::uint16_t>> narrow(3, std::vector<std::uint16_t>(kCount));
    for (std::size_t s = 0; s < wide.size(); ++s) {
      kernels::Convert(dtype, narrow[s].data(), DType::kF32, wide[s].data(), kCount, kernels::Stores::kCached);
      kernels::Convert(DType::kF32, wide[s].data(), dtype, narrow[s].data(), kCount, kernels::Stores::kCached);
    }
    const std::vector<float> exact = Combined(DType::kF32, wide, kThirds, kernels::Results::kAll);
    std::vector<std::uint16_t> rounded(kCount);
    kernels::Convert(dtype, rounded.data(), DType::kF32, exact.data(), kCount, kernels::Stores::kCached);
    EXPECT_EQ(Combined(dtype, narrow, kThirds, kernels::Results::kAll), rounded) << Name(dtype);
  }
}

TEST(Combine, MayOverwriteASource) {
  std::vector<float> a = Values<float>(21, 1);
  const std::vector<float> b = Values<float>(21, 2);
  const std::vector<float> before = a;
  constexpr Coefficient kDifference[] = {{1, 1}, {-1, 1}};
  kernels::Combine(DType::kF32, a.data(), {a.data(), b.data()}, kDifference, 21, kernels::Results::kAll);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], before[i] - b[i]);
}

TEST(Combine, FiniteResultsOnly) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> srcs = {{1, kInf, std::nanf(""), 3e38f, 5}, {2, 1, 1, 3e38f, -kInf}};
  constexpr Coefficient kSum[] = {{1, 1}, {1, 1}};
  EXPECT_EQ(Combined(DType::kF32, srcs, kSum, kernels::Results::kFinite), (std::vector<float>{3, 0, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(Combined(DType::kF32, srcs, kSum, kernels::Results::kAll)[2]));
}

}  // namespace
}  // namespace tutti
