#include <gtest/gtest.h>

#include <vector>

#include "kernels/reduce.h"
#include "tests/kernels/element_values.h"

namespace tutti::kernels {
namespace {

// The kernel equals a reduction in fp32 that is rounded once, for any number of sources and any length.
TEST(ReduceAndRoundTest, IsAReductionInFp32RoundedOnce) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const ReduceOp op : OpsOf(dtype)) {
      for (const std::size_t sources : {1, 2, 5, 64, 65, 130}) {
        for (const std::int64_t count : {0, 1, 2047, 2048, 5001}) {
          std::vector<std::vector<float>> values(sources, std::vector<float>(count));
          std::vector<const void*> srcs;
          for (std::size_t s = 0; s < sources; ++s) {
            for (std::int64_t i = 0; i < count; ++i) {
              values[s][i] = op == ReduceOp::kProd ? 1.0f + static_cast<float>((s + i) % 3 == 0) * 0.001f
                                                   : static_cast<float>((37 * s + 11 * i) % 251) / 8.0f;
            }
            srcs.push_back(values[s].data());
          }
          std::vector<float> exact(count);
          void* const exact_data = exact.data();
          Reduce(DType::kF32, op, 3, {&exact_data, 1}, srcs, count, Stores::kCached);
          std::vector<std::uint16_t> expected(count);
          Convert(dtype, expected.data(), DType::kF32, exact.data(), count, Stores::kCached);
          std::vector<std::uint16_t> first(count);
          std::vector<std::uint16_t> second(count);
          void* const dsts[] = {first.data(), second.data()};
          ReduceAndRound(dtype, op, 3, dsts, srcs, count, Stores::kCached);
          EXPECT_EQ(first, expected) << Name(dtype) << " " << Name(op) << " " << sources << " " << count;
          EXPECT_EQ(second, expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::kernels
