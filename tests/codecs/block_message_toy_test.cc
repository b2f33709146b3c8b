// The codec of docs/adding_a_codec.md works as it stands there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"

// Under a name of its own, so that a reader who follows the page can add the codec to the library.
#define tutti_codec_toy codec_of_the_page
#include "docs/examples/codecs/toy.cc"

namespace tutti {
namespace {

void ExpectErrorsWithinTheBound(const std::vector<float>& values, absl::string_view name) {
  constexpr CodecOptions kWhole = {.block = 0};
  const std::vector<float> decoded = RoundTrip(codec_of_the_page, kWhole, values);
  const double bound = codec_of_the_page.largest_error(values, kWhole);
  if (std::isinf(bound)) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i])), bound)
        << name << ", element " << i << ": " << values[i] << " became " << decoded[i];
  }
}

TEST(ToyCodecTest, ErrorStaysWithinTheBound) {
  for (Input input : kAllInputs) ExpectErrorsWithinTheBound(MakeValues(input, 1000), Name(input));
}

// The step of such a block is rounded by up to a half of itself, so that 127 steps may end before the largest value.
TEST(ToyCodecTest, ErrorStaysWithinTheBoundInBlocksOfTheSmallestNumbers) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  for (int largest = 1; largest <= 300; ++largest) {
    std::vector<float> values;
    for (int k = -largest; k <= largest; ++k) values.push_back(static_cast<float>(k) * kSmallest);
    ExpectErrorsWithinTheBound(values, "multiples of the smallest number");
  }
}

TEST(ToyCodecTest, ANanShowsInItsBlockOnly) {
  std::vector<float> values = MakeValues(Input::kUniform, 64);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> decoded = RoundTrip(codec_of_the_page, {.block = 32}, values);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(decoded[i]), i >= 32) << i;
}

}  // namespace
}  // namespace tutti
