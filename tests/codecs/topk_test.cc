#include "tests/codecs/golden/topk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

const Codec& TopK() { return **FindCodec("topk"); }

// The elements that topk keeps, found by sorting.
std::vector<float> Reference(const std::vector<float>& values, std::int64_t block, double density) {
  std::vector<float> result(values.size(), 0.0f);
  const auto count = static_cast<std::int64_t>(values.size());
  for (std::int64_t begin = 0; begin < count; begin += block) {
    std::vector<std::int64_t> order(std::min(block, count - begin));
    std::iota(order.begin(), order.end(), begin);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return std::abs(values[a]) > std::abs(values[b]); });
    order.resize(std::max(1l, std::lround(density * static_cast<double>(order.size()))));
    for (std::int64_t i : order) result[i] = values[i];
  }
  return result;
}

TEST(TopKTest, SendsTheLargestExactlyAndNothingElse) {
  for (Input input : kAllInputs) {
    for (std::int64_t count : {100, 1000, 3001}) {
      for (std::int64_t block : {0, 64, 1024}) {
        for (double density : {0.001, 0.05, 0.4}) {
          const std::vector<float> values = MakeValues(input, count);
          const std::vector<float> decoded = RoundTrip(TopK(), {.block = block, .density = density}, values);
          EXPECT_EQ(kernels::Differences(decoded, Reference(values, block == 0 ? count : block, density)), "")
              << Name(input) << " " << count << " " << block << " " << density;
        }
      }
    }
  }
}

// In large blocks the largest are looked for among candidates that a sample suggests. Samples are 16 elements together,
// of which the last inputs make the sample a bad one.
TEST(TopKTest, LargeBlocksSendTheLargestToo) {
  constexpr std::int64_t kCount = 65536 + 5000;
  const std::vector<float> bell = MakeValues(Input::kBellShaped, kCount);
  std::vector<float> large_ends = bell;
  std::vector<float> small_starts = bell;
  for (std::int64_t i = 0; i < kCount; ++i) {
    if (i % 64 >= 48) large_ends[i] = 8 + bell[i];
    if (i % 1024 < 16) small_starts[i] = 0;
  }
  std::vector<std::vector<float>> inputs = {large_ends, small_starts};
  for (Input input : kAllInputs) inputs.push_back(MakeValues(input, kCount));
  for (const std::vector<float>& values : inputs) {
    for (double density : {1e-5, 0.01, 0.06, 0.4}) {
      ASSERT_EQ(kernels::Differences(RoundTrip(TopK(), {.block = 65536, .density = density}, values),
                                     Reference(values, 65536, density)),
                "")
          << density << ", input " << &values - inputs.data();
    }
  }
}

TEST(TopKTest, OfEqualMagnitudesTheFirstWin) {
  std::vector<float> values(64, 0.5f);
  values[40] = -2;
  values[3] = -0.5f;
  const std::vector<float> decoded = RoundTrip(TopK(), {.block = 64, .density = 6.0 / 64}, values);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(decoded[i], i < 5 || i == 40 ? values[i] : 0.0f) << i;
}

TEST(TopKTest, DistantBlocksHaveWideIndices) {
  constexpr std::int64_t kCount = 200000;
  std::vector<float> values(kCount, 0.001f);
  values[kCount - 1] = 3;
  values[65536] = -4;
  EXPECT_EQ(TopK().encoded_bytes(kCount, {.block = 0, .density = 1e-5}), 24 + 2 * 8);
  EXPECT_EQ(TopK().encoded_bytes(kCount, {.block = 65536, .density = 1e-5}), 24 + 4 * 6);
  const std::vector<float> decoded = RoundTrip(TopK(), {.block = 0, .density = 1e-5}, values);
  EXPECT_EQ(decoded[65536], -4);
  EXPECT_EQ(decoded[kCount - 1], 3);
  EXPECT_EQ(std::count(decoded.begin(), decoded.end(), 0.0f), kCount - 2);
}

TEST(TopKTest, DenseMessagesAreRawAndExact) {
  const std::vector<float> values = MakeValues(Input::kManyScales, 1000);
  EXPECT_EQ(TopK().encoded_bytes(1000, {.block = 0, .density = 1}), 24 + 4000);
  EXPECT_EQ(RoundTrip(TopK(), {.block = 0, .density = 1}, values), values);
}

TEST(TopKTest, IndicesThatNoEncoderWritesAreRefused) {
  const CodecOptions options = {.block = 0, .density = 0.03};
  const std::vector<std::uint8_t> message = EncodeMessage(TopK(), options, MakeValues(Input::kUniform, 100));
  ASSERT_EQ(message.size(), 24u + 3 * 6);
  for (const std::uint16_t index : {std::uint16_t{100}, std::uint16_t{101}, std::uint16_t{65535}}) {
    std::vector<std::uint8_t> damaged = message;
    std::memcpy(&damaged[24 + 12 + 4], &index, 2);
    std::vector<float> values(100, 42.0f);
    const absl::Status status = TopK().decode(damaged, options, false, absl::MakeSpan(values));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), "topk message: the block at element 0 of 100 has a code that no encoder writes");
  }
  std::vector<std::uint8_t> twice = message;
  std::memcpy(&twice[24 + 12], &message[24 + 12 + 2], 2);
  std::vector<float> values(100);
  EXPECT_EQ(TopK().decode(twice, options, false, absl::MakeSpan(values)).code(), absl::StatusCode::kDataLoss);
}

TEST(TopKTest, DensitiesThatMakeNoSenseAreRefused) {
  for (double density : {0.0, -0.1, 1.01, std::nan("")}) {
    const absl::Status status = TopK().validate({.block = 0, .density = density});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << density;
    EXPECT_NE(status.message().find("density"), absl::string_view::npos) << status;
  }
}

TEST(TopKTest, BytesAreTheGoldenOnes) { CheckGolden(TopK(), kTopKGolden); }

}  // namespace
}  // namespace tutti
