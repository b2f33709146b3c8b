#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "kernels/select_largest.h"
#include "tests/codecs/inputs.h"

namespace tutti::kernels {
namespace {

constexpr std::int64_t kBlock = 65536;

// Expects that the candidates are all elements from the least of them on, in their order.
void ExpectAllLarge(const std::vector<float>& values, const Candidates& candidates) {
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
  for (std::int64_t k = 0; k < candidates.count; ++k) least = std::min(least, MagnitudeOf(candidates.values[k]));
  std::int64_t found = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (MagnitudeOf(values[i]) < least) continue;
    ASSERT_LT(found, candidates.count) << i;
    ASSERT_EQ(candidates.indices[found], i);
    ASSERT_EQ(MagnitudeOf(candidates.values[found]), MagnitudeOf(values[i]));
    ++found;
  }
  EXPECT_EQ(found, candidates.count);
}

TEST(CandidatesTest, AreAFewOfABlockAndHaveItsLargest) {
  const auto candidates = std::make_unique<Candidates>();
  for (std::int64_t size : {std::int64_t{4096}, kBlock - 1, kBlock, 3 * kBlock + 17}) {
    for (std::int64_t count : {std::int64_t{1}, size / 1000, size / 100}) {
      const std::vector<float> values = MakeValues(Input::kBellShaped, size);
      ASSERT_TRUE(FindCandidates(values, count, *candidates)) << size << " " << count;
      EXPECT_GE(candidates->count, count);
      EXPECT_LE(candidates->count, count + size / 20);
      ExpectAllLarge(values, *candidates);
    }
  }
}

TEST(CandidatesTest, ValuesThatAreNotFiniteAreCandidates) {
  const auto candidates = std::make_unique<Candidates>();
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
    for (std::int64_t position : {0, 1, 70, 65535}) {
      std::vector<float> values = MakeValues(Input::kBellShaped, kBlock);
      values[position] = bad;
      ASSERT_TRUE(FindCandidates(values, 655, *candidates));
      ExpectAllLarge(values, *candidates);
      EXPECT_FALSE(FindLargest({candidates->values, static_cast<std::size_t>(candidates->count)}, 655).finite);
    }
  }
  const std::vector<float> bad(kBlock, std::numeric_limits<float>::quiet_NaN());
  EXPECT_FALSE(FindCandidates(bad, 655, *candidates)) << "do not fit";
}

TEST(CandidatesTest, AreNotFoundWhereTheyDoNotFitOrAreTooFew) {
  const auto candidates = std::make_unique<Candidates>();
  EXPECT_FALSE(FindCandidates(std::vector<float>(kBlock, 0.5f), 655, *candidates)) << "all are equal";
  EXPECT_FALSE(FindCandidates(MakeValues(Input::kBellShaped, kBlock), kBlock / 2, *candidates)) << "too many wanted";
  EXPECT_FALSE(FindCandidates(MakeValues(Input::kBellShaped, 1000), 10, *candidates)) << "a small block";
  std::vector<float> values(kBlock, 0.001f);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    if (i % 1024 < 16) values[i] = 1;  // the sample has these alone
  }
  EXPECT_FALSE(FindCandidates(values, 1024 + 1, *candidates)) << "too few";
}

}  // namespace
}  // namespace tutti::kernels
