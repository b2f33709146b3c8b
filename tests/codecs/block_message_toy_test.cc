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

TEST(ToyCodecTest, ErrorStaysWithinTheBound) {
  for (Input input : {Input::kZeros, Input::kUniform, Input::kBellShaped, Input::kPositive, Input::kSparse}) {
    const std::vector<float> values = MakeValues(input, 1000);
    const std::vector<float> decoded = RoundTrip(codec_of_the_page, {.block = 0}, values);
    float largest = 0;
    for (float value : values) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_LE(std::abs(decoded[i] - values[i]), 0.501f * largest / 127) << Name(input) << i;
    }
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
