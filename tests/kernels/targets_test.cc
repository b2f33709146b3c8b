// All instruction sets of this processor must give equal bits, because results may not depend on the machine.
#include "hwy/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/adam.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"
#include "tests/codecs/inputs.h"
#include "tests/kernels/differences.h"
#include "tests/kernels/element_values.h"
#include "tutti/codec.h"
#include "tutti/codecs/finite_range.h"

namespace tutti::kernels {
namespace {

constexpr std::int64_t kCount = 1043;
// Elements of messages: a block of topk in which candidates are looked for, and another one; pieces of rotation of
// 4096.
constexpr std::int64_t kLong = 65536 + 5000;
constexpr DType kFloatingDTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// Runs `check` once per instruction set, restricting the dispatch to it.
template <typename Check>
void ForEachTarget(const Check& check) {
  std::int64_t remaining = hwy::SupportedTargets();
  while (remaining != 0) {
    const std::int64_t target = remaining & -remaining;
    remaining &= remaining - 1;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

// Expects that `run` returns equal bytes, those of elements of `dtype`, on every target.
template <typename Run>
void ExpectSameBytes(DType dtype, const Run& run) {
  std::vector<std::uint8_t> expected;
  int targets = 0;
  ForEachTarget([&] {
    const std::vector<std::uint8_t> bytes = run();
    if (targets++ == 0) expected = bytes;
    ASSERT_EQ(bytes.size(), expected.size());
    EXPECT_TRUE(bytes == expected) << Differences(dtype, bytes.data(), expected.data(),
                                                  static_cast<std::int64_t>(bytes.size()) / SizeOf(dtype));
  });
  if (targets < 2) GTEST_SKIP() << "this processor has one of Highway's targets only: nothing to compare with";
}

std::vector<std::uint8_t> MakeOperand(DType dtype, std::uint64_t seed) {
  const std::vector<float> values = MakeValues(Input::kManyScales, kCount, seed);
  std::vector<std::uint8_t> operand(static_cast<std::size_t>(kCount * SizeOf(dtype)));
  Convert(dtype, operand.data(), DType::kF32, values.data(), kCount, Stores::kCached);
  return operand;
}

TEST(TargetsTest, ReduceGivesTheSameBytes) {
  for (DType dtype : kFloatingDTypes) {
    const std::vector<std::uint8_t> a = MakeOperand(dtype, 1), b = MakeOperand(dtype, 2), c = MakeOperand(dtype, 3);
    const void* srcs[] = {a.data(), b.data(), c.data()};
    for (ReduceOp op : OpsOf(dtype)) {
      for (std::size_t num_srcs : {2u, 3u}) {
        SCOPED_TRACE(testing::Message() << Name(dtype) << " " << Name(op) << " of " << num_srcs);
        for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
          ExpectSameBytes(dtype, [&] {
            // Two results, aligned alike, and what lies behind each, which nobody may write.
            const std::size_t stride = a.size() / 64 * 64 + 128;
            std::vector<std::uint8_t> results(2 * stride);
            void* const dsts[] = {results.data(), results.data() + stride};
            Reduce(dtype, op, 3, dsts, {srcs, num_srcs}, kCount, stores);
            return results;
          });
        }
      }
    }
  }
}

TEST(TargetsTest, ProductsOfComplexNumbersAreTheSame) {
  for (DType dtype : {DType::kC64, DType::kC128}) {
    const DType part = PartOf(dtype);
    const std::vector<std::uint8_t> a = MakeOperand(part, 1), b = MakeOperand(part, 2), c = MakeOperand(part, 3);
    const void* srcs[] = {a.data(), b.data(), c.data()};
    SCOPED_TRACE(testing::Message() << Name(dtype));
    ExpectSameBytes(dtype, [&] {
      std::vector<std::uint8_t> result(a.size());
      void* dst = result.data();
      Reduce(dtype, ReduceOp::kProd, 1, {&dst, 1}, srcs, kCount / 2, Stores::kCached);
      return result;
    });
  }
}

TEST(TargetsTest, BitsAndTruthsAreTheSame) {
  const std::vector<std::uint8_t> a = MakeOperand(DType::kU8, 1), b = MakeOperand(DType::kU8, 2);
  const std::vector<std::uint8_t> c = MakeOperand(DType::kU8, 3);
  const void* srcs[] = {a.data(), b.data(), c.data()};
  for (DType dtype : {DType::kU8, DType::kBool}) {
    for (ReduceOp op : {ReduceOp::kBitwiseAnd, ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor}) {
      SCOPED_TRACE(testing::Message() << Name(dtype) << " " << Name(op));
      ExpectSameBytes(dtype, [&] {
        std::vector<std::uint8_t> result(a.size());
        void* dst = result.data();
        Reduce(dtype, op, 1, {&dst, 1}, srcs, kCount, Stores::kCached);
        return result;
      });
    }
  }
}

TEST(TargetsTest, ConvertGivesTheSameBytes) {
  for (DType from : kFloatingDTypes) {
    const std::vector<std::uint8_t> src = MakeOperand(from, 4);
    for (DType to : kFloatingDTypes) {
      SCOPED_TRACE(testing::Message() << Name(from) << " to " << Name(to));
      ExpectSameBytes(to, [&] {
        std::vector<std::uint8_t> dst(static_cast<std::size_t>(kCount * SizeOf(to)));
        Convert(to, dst.data(), from, src.data(), kCount, Stores::kStreaming);
        return dst;
      });
    }
  }
}

TEST(TargetsTest, AdamMakesTheSameBytes) {
  const std::vector<float> m = MakeValues(Input::kUniform, kCount, 5);
  const std::vector<float> v = MakeValues(Input::kPositive, kCount, 6);
  const auto make = [](DType dtype, std::uint64_t seed) {
    std::vector<std::uint8_t> operand(static_cast<std::size_t>(kCount * SizeOf(dtype)));
    Convert(dtype, operand.data(), DType::kF32, MakeValues(Input::kUniform, kCount, seed).data(), kCount,
            Stores::kCached);
    return operand;
  };
  const AdamFactors factors = {.beta1 = 0.9f,
                               .from_gradient1 = 0.1f,
                               .beta2 = 0.99f,
                               .from_gradient2 = 0.01f,
                               .weight_decay = 0.1f,
                               .step_size = 0.01f,
                               .correction = 0.7f,
                               .epsilon = 1e-8f};
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(testing::Message() << Name(dtype));
    ExpectSameBytes(dtype, [&] {
      std::vector<std::uint8_t> gradient = make(dtype, 7);
      std::vector<std::uint8_t> weights = make(dtype, 8);
      std::vector<float> new_m = m;
      std::vector<float> new_v = v;
      AdamStep(dtype, weights.data(), gradient.data(), new_m.data(), new_v.data(), kCount, factors);
      BlendIntoMomentum(dtype, gradient.data(), weights.data(), new_m.data(), kCount, factors);
      FrozenAdamStep(dtype, weights.data(), gradient.data(), new_m.data(), new_v.data(), kCount, factors);
      gradient.insert(gradient.end(), weights.begin(), weights.end());
      return gradient;
    });
  }
}

TEST(TargetsTest, CombineGivesTheSameBytes) {
  constexpr Coefficient kThirds[] = {{1, 1}, {1, 3}, {-5, 3}};
  for (DType dtype : kFloatingDTypes) {
    const std::vector<std::uint8_t> a = MakeOperand(dtype, 1), b = MakeOperand(dtype, 2), c = MakeOperand(dtype, 3);
    for (const Results results : {Results::kAll, Results::kFinite}) {
      SCOPED_TRACE(testing::Message() << Name(dtype) << " finite " << (results == Results::kFinite));
      ExpectSameBytes(dtype, [&] {
        std::vector<std::uint8_t> result(a.size());
        Combine(dtype, result.data(), {a.data(), b.data(), c.data()}, kThirds, kCount, results);
        return result;
      });
    }
  }
}

// Compares a message, and the elements that it decodes to.
void ExpectSameMessages(const Codec& codec, const CodecOptions& options, const std::vector<float>& values) {
  const auto encode = [&] {
    std::vector<std::uint8_t> message(codec.encoded_bytes(static_cast<std::int64_t>(values.size()), options));
    codec.encode(values, options, 3, absl::MakeSpan(message));
    return message;
  };
  ExpectSameBytes(DType::kU8, encode);
  for (const bool accumulate : {false, true}) {
    ExpectSameBytes(DType::kF32, [&] {
      std::vector<float> decoded(values.size(), 0.5f);
      EXPECT_TRUE(codec.decode(encode(), options, accumulate, absl::MakeSpan(decoded)).ok());
      // A NaN's bits are not defined.
      for (float& value : decoded) value = value == value ? value : 0.0f;
      const auto* const begin = reinterpret_cast<const std::uint8_t*>(decoded.data());
      return std::vector<std::uint8_t>(begin, begin + 4 * decoded.size());
    });
  }
}

// Every codec with every option that changes arithmetic.
TEST(TargetsTest, MessagesAreTheSame) {
  for (const Codec* codec : AllCodecs()) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const auto& [rotation, block] : {std::pair(false, codec->defaults.block),
                                            std::pair(true, codec->defaults.block), std::pair(false, std::int64_t{0}),
                                            std::pair(true, std::int64_t{1024}), std::pair(true, std::int64_t{4096})}) {
        CodecOptions options = codec->defaults;
        options.rounding = rounding;
        options.rotation = rotation;
        options.block = block;
        if (!codec->validate(options).ok()) continue;
        for (Input input : kAllInputs) {
          if (codec->name == "minmax_uint8" && (input == Input::kHuge || input == Input::kLargest)) continue;  // NaN
          SCOPED_TRACE(testing::Message() << ToString({codec, options}) << " " << Name(input));
          ExpectSameMessages(*codec, options, MakeValues(input, kCount));
          if (input != Input::kBellShaped) continue;
          ExpectSameMessages(*codec, options, MakeValues(input, kLong));
        }
      }
    }
  }
}

TEST(TargetsTest, RangesAreTheSame) {
  for (std::int64_t count : {1, 2, 15, 16, 31, 32, 33, 1000}) {
    const std::vector<float> values = MakeValues(Input::kManyScales, count);
    ForEachTarget([&] {
      const FiniteRange range = FindRange(values);
      EXPECT_EQ(range.min, *std::min_element(values.begin(), values.end()));
      EXPECT_EQ(range.max, *std::max_element(values.begin(), values.end()));
      for (std::int64_t i = 0; i < count; i += 7) {
        for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
          std::vector<float> poisoned = values;
          poisoned[i] = bad;
          EXPECT_FALSE(FindRange(poisoned).finite) << i;
        }
      }
    });
  }
}

}  // namespace
}  // namespace tutti::kernels
