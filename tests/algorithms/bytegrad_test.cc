// bytegrad against its definition, written down as one loop over all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/reduce.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/algorithm.h"
#include "tutti/cost_model.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

std::vector<Plan> PlansOf(const std::string& strategy_name, DType dtype, std::int64_t count, int size,
                          const PlanOptions& options) {
  absl::StatusOr<Strategy> strategy = ParseStrategy(strategy_name);
  EXPECT_TRUE(strategy.ok()) << strategy.status();
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    absl::StatusOr<Plan> plan = BuildPlan(*strategy, dtype, count, rank, size, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plans.push_back(*std::move(plan));
  }
  return plans;
}

std::vector<Plan> PlansOf(const std::string& strategy_name, DType dtype, std::int64_t count, int size, bool mapped) {
  return PlansOf(strategy_name, dtype, count, size, {.segment_bytes = 4096, .peers_mapped = mapped});
}

Bytes Encoded(const Floats& values, DType dtype) {
  Bytes bytes(values.size() * static_cast<std::size_t>(SizeOf(dtype)));
  kernels::Convert(dtype, bytes.data(), DType::kF32, values.data(), static_cast<std::int64_t>(values.size()),
                   kernels::Stores::kCached);
  return bytes;
}

Floats AsFloats(const Bytes& bytes, DType dtype) {
  Floats values(bytes.size() / static_cast<std::size_t>(SizeOf(dtype)));
  kernels::Convert(DType::kF32, values.data(), dtype, bytes.data(), static_cast<std::int64_t>(values.size()),
                   kernels::Stores::kCached);
  return values;
}

// The contents of the bucket of every rank after the plans have run.
std::vector<Bytes> BucketsAfter(const std::vector<Plan>& plans, const std::vector<Floats>& gradients, DType dtype,
                                SequentialExecutor::Order order) {
  std::vector<Bytes> out;
  for (const Floats& gradient : gradients) out.push_back(Encoded(gradient, dtype));
  SequentialExecutor executor(plans, std::vector<Bytes>(plans.size()), out, order);
  EXPECT_EQ(executor.Run(), "");
  for (Rank rank = 0; rank < static_cast<Rank>(plans.size()); ++rank) out[rank] = executor.out(rank);
  return out;
}

Floats RoundTrip(const CodecChoice& codec, const Floats& values) {
  std::vector<std::uint8_t> bytes(codec.codec->encoded_bytes(static_cast<std::int64_t>(values.size()), codec.options));
  codec.codec->encode(values, codec.options, /*draw=*/0, absl::MakeSpan(bytes));
  Floats decoded(values.size());
  EXPECT_TRUE(codec.codec->decode(bytes, codec.options, false, absl::MakeSpan(decoded)).ok());
  return decoded;
}

// The sum or average, after one exchange, of these elements of the gradients of all ranks.
Floats OneShotReference(const CodecChoice& codec, const std::vector<Floats>& gradients, const Range& range,
                        bool average) {
  Floats sum;
  for (const Floats& gradient : gradients) {
    const Floats decoded =
        RoundTrip(codec, {gradient.begin() + range.begin, gradient.begin() + range.begin + range.count});
    if (sum.empty()) {
      sum = decoded;  // adding it to 0 would lose the sign of a zero
      continue;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += decoded[i];
  }
  if (average) {
    for (float& element : sum) element /= static_cast<float>(gradients.size());
  }
  return sum;
}

Floats Reference(const CodecChoice& codec, const std::vector<Floats>& gradients, bool average) {
  const int size = static_cast<int>(gradients.size());
  Floats result;
  for (int chunk = 0; chunk < size; ++chunk) {
    const Range range = ChunkOf(static_cast<std::int64_t>(gradients[0].size()), size, chunk);
    const Floats decoded = RoundTrip(codec, OneShotReference(codec, gradients, range, average));
    result.insert(result.end(), decoded.begin(), decoded.end());
  }
  return result;
}

std::vector<Floats> Gradients(int size, std::int64_t count) {
  std::vector<Floats> gradients(size, Floats(count));
  for (Rank rank = 0; rank < size; ++rank) {
    for (std::int64_t i = 0; i < count; ++i) {
      gradients[rank][i] = std::sin(static_cast<float>(i * (rank + 3))) * std::exp(static_cast<float>(i % 7 - 3));
    }
  }
  return gradients;
}

// The buckets of all ranks are equal, and near the average of the gradients, which lie within ±e³: off by half a level
// in each of two codec steps, and by what the dtype itself rounds away.
void ExpectNearAverage(const std::vector<Bytes>& out, const std::vector<Floats>& gradients, DType dtype) {
  for (std::size_t rank = 1; rank < out.size(); ++rank) {
    EXPECT_TRUE(out[rank] == out[0]) << Name(dtype) << " rank " << rank;
  }
  const Floats result = AsFloats(out[0], dtype);
  const double level = 2 * std::exp(3.0) / 255;
  const double rounding = dtype == DType::kBF16 ? 0.2 : dtype == DType::kF16 ? 0.02 : 1e-4;
  for (std::size_t i = 0; i < result.size(); ++i) {
    double average = 0;
    for (const Floats& gradient : gradients)
      average += static_cast<double>(gradient[i]) / static_cast<double>(gradients.size());
    EXPECT_NEAR(result[i], average, level * 1.01 + rounding) << Name(dtype) << " element " << i;
  }
}

struct Case {
  int size;
  bool mapped;
};

class ByteGrad : public ::testing::TestWithParam<Case> {};

TEST_P(ByteGrad, IsBitEqualToItsDefinitionOnEveryRank) {
  const auto [size, mapped] = GetParam();
  for (const std::string options :
       {"uint8_block,block=64", "uint8_block,block=1024", "minmax_uint8,block=0", "uint4_block",
        "uint4_block,rotation=true,seed=7", "sign", "topk,block=64", "topk,density=0.2", "bf16", "fp16"}) {
    const std::string name = absl::StrCat("bytegrad:codec=", options);
    const CodecChoice codec = CodecOf(*ParseStrategy(name));
    for (const std::int64_t count : {1000, 1009, 10007}) {
      const std::vector<Floats> gradients = Gradients(size, count);
      const Floats expected = size == 1 ? gradients[0] : Reference(codec, gradients, true);
      for (const auto order : {SequentialExecutor::Order::kFirstToLast, SequentialExecutor::Order::kLastToFirst}) {
        const std::vector<Plan> plans = PlansOf(name, DType::kF32, count, size, mapped);
        for (const Bytes& out : BucketsAfter(plans, gradients, DType::kF32, order)) {
          EXPECT_TRUE(out == Encoded(expected, DType::kF32)) << name << " count " << count;
        }
      }
    }
  }
}

TEST_P(ByteGrad, SumsWhenNotAveraging) {
  const auto [size, mapped] = GetParam();
  const std::string name = "bytegrad:average=false";
  const std::vector<Floats> gradients = Gradients(size, 5000);
  const CodecChoice codec = {*FindCodec("uint8_block"), {.block = 1024}};
  const Floats expected = size == 1 ? gradients[0] : Reference(codec, gradients, false);
  const std::vector<Plan> plans = PlansOf(name, DType::kF32, 5000, size, mapped);
  for (const Bytes& out : BucketsAfter(plans, gradients, DType::kF32, SequentialExecutor::Order::kFirstToLast)) {
    EXPECT_TRUE(out == Encoded(expected, DType::kF32));
  }
}

TEST_P(ByteGrad, StaysNearTheAverageAndEqualOnAllRanksForEveryDType) {
  const auto [size, mapped] = GetParam();
  constexpr std::int64_t kCount = 5003;
  const std::vector<Floats> gradients = Gradients(size, kCount);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const std::vector<Plan> plans = PlansOf("bytegrad", dtype, kCount, size, mapped);
    const std::vector<Bytes> out = BucketsAfter(plans, gradients, dtype, SequentialExecutor::Order::kFirstToLast);
    ExpectNearAverage(out, gradients, dtype);
  }
}

TEST_P(ByteGrad, SmallBucketsAreExact) {
  const auto [size, mapped] = GetParam();
  for (const std::int64_t count : {0, 1, size - 1, size, size + 1, 17}) {
    std::vector<Floats> gradients(size, Floats(count));
    for (Rank rank = 0; rank < size; ++rank)
      std::fill(gradients[rank].begin(), gradients[rank].end(), static_cast<float>(rank) + 0.5f);
    const std::vector<Plan> plans = PlansOf("bytegrad:average=false", DType::kF32, count, size, mapped);
    const Floats expected(count, static_cast<float>(size * (size - 1)) / 2 + 0.5f * static_cast<float>(size));
    for (const Bytes& out : BucketsAfter(plans, gradients, DType::kF32, SequentialExecutor::Order::kFirstToLast)) {
      EXPECT_TRUE(out == Encoded(expected, DType::kF32)) << "count " << count;
    }
  }
}

TEST_P(ByteGrad, ANanIsSeenByEveryRank) {
  const auto [size, mapped] = GetParam();
  std::vector<Floats> gradients = Gradients(size, 4096);
  gradients[size - 1][1234] = std::nanf("");
  const std::vector<Plan> plans = PlansOf("bytegrad", DType::kF32, 4096, size, mapped);
  for (const Bytes& out : BucketsAfter(plans, gradients, DType::kF32, SequentialExecutor::Order::kFirstToLast)) {
    EXPECT_TRUE(std::isnan(AsFloats(out, DType::kF32)[1234]));
  }
}

TEST_P(ByteGrad, MovesAQuarterOfTheBytes) {
  const auto [size, mapped] = GetParam();
  constexpr std::int64_t kCount = 1 << 20;
  const double exact =
      static_cast<double>(WireBytes(PlansOf("gradient_allreduce", DType::kF32, kCount, size, mapped)[0]));
  const double encoded = static_cast<double>(WireBytes(PlansOf("bytegrad", DType::kF32, kCount, size, mapped)[0]));
  if (size == 1) {
    EXPECT_EQ(encoded, 0);
  } else {
    EXPECT_LE(encoded, 0.27 * exact);
  }
}

INSTANTIATE_TEST_SUITE_P(All, ByteGrad,
                         ::testing::Values(Case{1, false}, Case{2, false}, Case{3, false}, Case{4, false},
                                           Case{5, false}, Case{8, false}, Case{1, true}, Case{2, true}, Case{3, true},
                                           Case{4, true}, Case{5, true}, Case{8, true}),
                         [](const ::testing::TestParamInfo<Case>& test) {
                           return absl::StrCat(test.param.size, test.param.mapped ? "RanksMapped" : "RanksOfMessages");
                         });

// One rank on each of `size` hosts, with a message that takes so many seconds, and carries so many bytes per second.
PlanOptions Hosts(int size, double latency_s, double bytes_per_s = 1e9) {
  CostModel model = DefaultCostModel();
  model.between_nodes.latency_s = latency_s;
  model.between_nodes.bytes_per_s = bytes_per_s;
  std::vector<int> nodes(size);
  std::iota(nodes.begin(), nodes.end(), 0);
  return {.nodes = std::move(nodes), .cost_model = std::make_shared<const CostModel>(std::move(model))};
}

class ByteGradBetweenFarHosts : public ::testing::TestWithParam<int> {};

TEST_P(ByteGradBetweenFarHosts, IsBitEqualToOneExchangeOnEveryRank) {
  const int size = GetParam();
  PlanOptions hosts = Hosts(size, 1.0);
  hosts.segment_bytes = 4096;
  for (const bool average : {true, false}) {
    for (const std::string codec_options : {"uint8_block,block=64", "uint8_block,block=1024", "minmax_uint8,block=0",
                                            "uint4_block,rotation=true,seed=7", "topk,density=0.2", "sign"}) {
      const std::string name = absl::StrCat("bytegrad:codec=", codec_options, average ? "" : ",average=false");
      const CodecChoice codec = CodecOf(*ParseStrategy(name));
      for (const std::int64_t count : {1000, 1009, 10007}) {
        const std::vector<Floats> gradients = Gradients(size, count);
        const Floats expected = OneShotReference(codec, gradients, {0, count}, average);
        for (const auto order : {SequentialExecutor::Order::kFirstToLast, SequentialExecutor::Order::kLastToFirst}) {
          const std::vector<Plan> plans = PlansOf(name, DType::kF32, count, size, hosts);
          for (const Bytes& out : BucketsAfter(plans, gradients, DType::kF32, order)) {
            EXPECT_TRUE(out == Encoded(expected, DType::kF32)) << name << " count " << count;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ByteGradBetweenFarHosts, ::testing::Values(2, 3, 4, 5));

// In how many exchanges a bucket is averaged: the owner of a chunk encodes the chunk once more for the second one.
int ExchangesOf(const std::string& strategy, std::int64_t count, int size, const PlanOptions& options) {
  const std::vector<Plan> plans = PlansOf(strategy, DType::kF32, count, size, options);
  std::int64_t encoded = 0;
  for (const Plan& plan : plans) {
    for (const Step& step : plan.steps) {
      if (step.kind == StepKind::kEncode) encoded += plan.srcs(step)[0].count();
    }
  }
  EXPECT_TRUE(encoded == size * count || encoded == (size + 1) * count) << encoded;
  return encoded == size * count ? 1 : 2;
}

TEST(ByteGradExchanges, AreOneWhereThatTakesLessTime) {
  constexpr std::int64_t kCount = 100'000;
  const auto exchanges = [](std::int64_t count, int size, double latency_s) {
    return ExchangesOf("bytegrad", count, size, Hosts(size, latency_s));
  };
  EXPECT_EQ(exchanges(kCount / 10, 2, 1e-6), 1) << "as many bytes, and half of the messages";
  EXPECT_EQ(exchanges(kCount, 2, 1e-3), 1);
  EXPECT_EQ(exchanges(100 * kCount, 2, 1e-6), 2) << "the second way is hidden";
  EXPECT_EQ(exchanges(kCount, 4, 1e-6), 2);
  EXPECT_EQ(exchanges(kCount, 4, 1e-3), 1);
  EXPECT_EQ(exchanges(100 * kCount, 4, 1e-3), 2);
  EXPECT_EQ(exchanges(kCount, 64, 1.0), 1);
  EXPECT_EQ(exchanges(kCount, 65, 1.0), 2) << "that many messages would meet at each rank";
}

TEST(ByteGradExchanges, AreAlwaysTwoWhereMoreThanTheLinkDecides) {
  constexpr std::int64_t kCount = 100'000;
  const PlanOptions far = Hosts(2, 1.0);
  EXPECT_EQ(ExchangesOf("bytegrad", kCount, 2, far), 1);
  EXPECT_EQ(ExchangesOf("bytegrad:error_feedback=true", kCount, 2, far), 2) << "checkpoints have both residuals";
  for (const char* cast : {"bytegrad:codec=bf16", "gradient_allreduce:codec=bf16", "gradient_allreduce:codec=fp16"}) {
    EXPECT_EQ(ExchangesOf(cast, kCount, 2, far), 2) << cast << ": autotuning may change the buckets";
  }
  EXPECT_EQ(ExchangesOf("bytegrad:codec=topk,block=0,density=0.6", kCount, 2, far), 2)
      << "the indices of a whole bucket are twice as long, and it would be sent as it is";
  EXPECT_EQ(ExchangesOf("bytegrad", kCount, 2, {}), 2) << "two ranks of one node";
  PlanOptions two_ranks_on_each = Hosts(4, 1.0);
  two_ranks_on_each.nodes = {0, 0, 1, 1};
  EXPECT_EQ(ExchangesOf("bytegrad:hierarchical=false", kCount, 4, two_ranks_on_each), 2);
}

// One rank has a NaN, another one an infinity or numbers that overflow in the codec: all ranks have the same bits.
TEST_P(ByteGradBetweenFarHosts, NonFiniteNumbersAreTheSameOnEveryRank) {
  const int size = GetParam();
  constexpr std::int64_t kCount = 3000;
  for (const std::string codec :
       {"uint8_block", "minmax_uint8", "uint4_block", "uint4_block,rotation=true,seed=7", "sign", "topk,block=64"}) {
    for (const float other : {std::nanf(""), -std::nanf("7"), HUGE_VALF, -HUGE_VALF, 3e38f}) {
      std::vector<Floats> gradients = Gradients(size, kCount);
      gradients[0][1234] = std::nanf("");
      gradients[size - 1][1234] = other;
      gradients[size - 1][1235] = -3e38f;
      const std::string name = absl::StrCat("bytegrad:codec=", codec);
      const std::vector<Plan> plans = PlansOf(name, DType::kF32, kCount, size, Hosts(size, 1.0));
      const std::vector<Bytes> out =
          BucketsAfter(plans, gradients, DType::kF32, SequentialExecutor::Order::kFirstToLast);
      EXPECT_TRUE(std::isnan(AsFloats(out[0], DType::kF32)[1234])) << name;
      for (const Bytes& theirs : out) EXPECT_TRUE(theirs == out[0]) << name << " beside " << other;
    }
  }
}

TEST_P(ByteGradBetweenFarHosts, StaysNearTheAverageForEveryDTypeAndRounding) {
  const int size = GetParam();
  constexpr std::int64_t kCount = 5003;
  const std::vector<Floats> gradients = Gradients(size, kCount);
  PlanOptions hosts = Hosts(size, 1.0);
  hosts.segment_bytes = 4096;
  for (const char* name : {"bytegrad", "bytegrad:rounding=stochastic"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      const std::vector<Plan> plans = PlansOf(name, dtype, kCount, size, hosts);
      const std::vector<Bytes> out = BucketsAfter(plans, gradients, dtype, SequentialExecutor::Order::kLastToFirst);
      SCOPED_TRACE(name);
      ExpectNearAverage(out, gradients, dtype);
    }
  }
}

// The elements that each message of the codec holds, of the chunk that rank 0 of 2 sends in the first of two exchanges.
std::vector<std::int64_t> PiecesOf(const std::string& options, std::int64_t count, double bytes_per_s) {
  const PlanOptions hosts = Hosts(2, 1e-6, bytes_per_s);
  const std::string strategy = absl::StrCat("bytegrad:error_feedback=true", options);
  const Plan plan = *BuildPlan(*ParseStrategy(strategy), DType::kF32, count, 0, 2, hosts);
  const std::int64_t chunk = ChunkOf(count, 2, 1).begin * SizeOf(DType::kF32);
  std::vector<std::int64_t> pieces;
  for (const Step& step : plan.steps) {
    if (step.kind != StepKind::kEncode) continue;
    const Ref& values = plan.srcs(step)[0];
    if (values.offset >= chunk) pieces.push_back(values.count());
  }
  return pieces;
}

TEST(ByteGradPieces, AreAsManyAsThePipelineNeeds) {
  constexpr std::int64_t kSegment = (256 << 10) / 4;
  using ::testing::ElementsAre;
  const std::int64_t half = 3 * kSegment + kSegment / 2;
  EXPECT_THAT(PiecesOf("", 2 * half, 1e9), ElementsAre(74 * 1024, 74 * 1024, 76 * 1024));
  EXPECT_THAT(PiecesOf("", 2 * half, 1e7),
              ElementsAre(half));  // a slow link: computing takes no time beside it
  EXPECT_THAT(PiecesOf(",codec=minmax_uint8,block=0", 2 * half, 1e9), ElementsAre(half));
  EXPECT_THAT(PiecesOf("", 2000, 1e9), ElementsAre(1000));
  EXPECT_THAT(PiecesOf(",codec=uint8_block,block=131072", 2 * half, 1e9), ElementsAre(half));
}

// Two runs that measure the link a little differently must draw the same random numbers, which are those of the place
// of an element in its message and of the message in the plan.
TEST(ByteGradPieces, AreOneWhereTheCodecRoundsAtRandom) {
  constexpr std::int64_t kCount = 25 << 18;
  const auto pieces = [](const std::string& options, double bytes_per_s) {
    return PiecesOf(options, kCount, bytes_per_s).size();
  };
  EXPECT_NE(pieces("", 108e6), pieces("", 128e6));
  for (const char* codec : {"uint8_block", "uint4_block", "bf16", "fp16"}) {
    const std::string options = absl::StrCat(",rounding=stochastic,codec=", codec);
    for (const double bytes_per_s : {1e9, 128e6, 108e6}) EXPECT_EQ(pieces(options, bytes_per_s), 1) << codec;
  }
}

TEST(ByteGradErrors, SaysWhatItCannotEncode) {
  for (const DType dtype : {DType::kF64, DType::kI32, DType::kU8}) {
    const absl::Status status = BuildPlan(*ParseStrategy("bytegrad"), dtype, 100, 0, 2, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot be encoded; valid: f32, f16, bf16"));
  }
}

}  // namespace
}  // namespace tutti
