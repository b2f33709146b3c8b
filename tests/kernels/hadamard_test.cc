#include "kernels/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "tests/codecs/inputs.h"

namespace tutti::kernels {
namespace {

std::vector<float> Integers(std::size_t count) {
  SplitMix random(2);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.Next() % 17) - 8.0f;
  return values;
}

TEST(HadamardTest, IsTheProductWithTheMatrix) {
  for (std::size_t count : {1, 2, 4, 8, 16, 32, 256}) {
    const std::vector<float> values = Integers(count);
    std::vector<float> product = values;
    Hadamard(product.data(), count);
    for (std::size_t row = 0; row < count; ++row) {
      float expected = 0;
      for (std::size_t column = 0; column < count; ++column) {
        expected += std::popcount(row & column) % 2 == 0 ? values[column] : -values[column];
      }
      ASSERT_EQ(product[row], expected) << count << " row " << row;
    }
  }
}

TEST(HadamardTest, PassesAreInTheOrderThatIsPromised) {
  for (std::size_t count : {2, 4, 8, 16, 64, 4096}) {
    const std::vector<float> values = MakeValues(Input::kManyScales, static_cast<std::int64_t>(count));
    std::vector<float> expected = values;
    for (std::size_t distance = 1; distance < count; distance *= 2) {
      for (std::size_t i = 0; i < count; ++i) {
        if (i & distance) continue;
        const float a = expected[i], b = expected[i + distance];
        expected[i] = a + b;
        expected[i + distance] = a - b;
      }
    }
    std::vector<float> product = values;
    Hadamard(product.data(), count);
    EXPECT_EQ(product, expected) << count;
  }
}

TEST(RotationTest, UndoGivesTheValuesBack) {
  for (std::size_t count : {1, 2, 3, 5, 64, 100, 127, 1000, 4096}) {
    const std::vector<float> values = Integers(count);
    const Rotation rotation(5, count);
    std::vector<float> rotated(count), back(count), sum(count, 0.5f);
    rotation.Apply(values, rotated.data());
    std::vector<float> copy = rotated;
    rotation.Undo(copy.data(), false, absl::MakeSpan(back));
    EXPECT_EQ(back, values) << count;
    copy = rotated;
    rotation.Undo(copy.data(), true, absl::MakeSpan(sum));
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], values[i] + 0.5f);
  }
}

TEST(RotationTest, SpreadsOneValueOverItsBlockWithSignsOfTheSeed) {
  std::vector<float> values(64, 0.0f);
  values[17] = 8;
  std::vector<float> rotated(64), other(64);
  Rotation(1, 64).Apply(values, rotated.data());
  for (float value : rotated) EXPECT_EQ(std::abs(value), 1.0f);
  values = Integers(64);
  Rotation(1, 64).Apply(values, rotated.data());
  Rotation(2, 64).Apply(values, other.data());
  EXPECT_NE(rotated, other);
}

}  // namespace
}  // namespace tutti::kernels
