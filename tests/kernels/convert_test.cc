#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/float16.h"
#include "kernels/reduce.h"
#include "tests/kernels/element_values.h"

namespace tutti::kernels {
namespace {

template <typename To, typename From>
std::vector<To> ConvertAll(DType to, DType from, const std::vector<From>& values, Stores stores = Stores::kCached) {
  std::vector<To> result(values.size());
  Convert(to, result.data(), from, values.data(), static_cast<std::int64_t>(values.size()), stores);
  return result;
}

std::vector<std::uint16_t> AllBits() {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

TEST(ConvertTest, Every16BitNumberSurvivesFp32) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    const std::vector<std::uint16_t> bits = AllBits();
    const std::vector<float> wide = ConvertAll<float>(DType::kF32, dtype, bits);
    const std::vector<std::uint16_t> narrow = ConvertAll<std::uint16_t>(dtype, DType::kF32, wide);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float expected = dtype == DType::kF16 ? FloatFromFloat16(bits[i]) : FloatFromBFloat16(bits[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
        const float again = dtype == DType::kF16 ? FloatFromFloat16(narrow[i]) : FloatFromBFloat16(narrow[i]);
        ASSERT_TRUE(std::isnan(again)) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
        ASSERT_EQ(narrow[i], bits[i]) << i;
      }
    }
  }
}

// The distance from source to destination, modulo a page, decides how bytes are copied: all distances are tested.
TEST(ConvertTest, CopiesBytesOverAnyDistance) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kRoom = 4 * kPage;
  std::vector<std::uint8_t> memory(3 * kRoom);
  std::uint8_t* const src = memory.data() + 7;
  for (const std::size_t distance : {0, 1, 16, 63, 64, 65, 2048, 4080, 4095}) {
    std::uint8_t* const dst = src + kRoom + distance;
    for (const std::size_t count : {0, 1, 2047, 2048, 2049, 4097, 3 * 2048 + 5, 10'000}) {
      for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
      std::vector<std::uint8_t> expected = memory;
      std::copy_n(src, count, expected.begin() + (dst - memory.data()));
      Convert(DType::kU8, dst, DType::kU8, src, static_cast<std::int64_t>(count), Stores::kCached);
      ASSERT_EQ(memory, expected) << distance << ", " << count;
    }
  }
}

// The address of the destination is no multiple of the element's size: no element lies where a vector could be stored
// past the cache. The elements are whole vectors, because UBSan takes Highway's stores of single elements for errors.
TEST(ConvertTest, TakesMemoryThatIsNotAlignedToItsElements) {
  constexpr std::int64_t kCount = 4096;
  for (const DType from : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    std::vector<std::uint8_t> src(static_cast<std::size_t>(kCount * SizeOf(from)));
    for (std::int64_t i = 0; i < kCount; ++i) StoreElement(from, src.data(), i, static_cast<long double>(i % 251));
    for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
      if (from != to && (from == DType::kF64 || to == DType::kF64)) continue;  // never past the cache
      for (std::int64_t shift = 1; shift < SizeOf(to); ++shift) {
        std::vector<std::uint8_t> memory(static_cast<std::size_t>(kCount * SizeOf(to) + shift));
        std::uint8_t* const dst = memory.data() + shift;
        Convert(to, dst, from, src.data(), kCount, Stores::kStreaming);
        for (std::int64_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(LoadElement(to, dst, i), static_cast<long double>(i % 251))
              << Name(from) << " to " << Name(to) << " shifted by " << shift << " [" << i << "]";
        }
      }
    }
  }
}

// Rounds the middle of every pair of positive f16 neighbours, and the fp32 numbers next to the middle.
TEST(ConvertTest, RoundsToNearestEven) {
  std::vector<float> values;
  std::vector<std::uint16_t> expected;
  for (std::uint16_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = FloatFromFloat16(bits);
    const float high = bits == 0x7BFF ? 65536.0f : FloatFromFloat16(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;
    const auto up = static_cast<std::uint16_t>(bits + 1);
    values.insert(values.end(), {std::nextafter(middle, low), middle, std::nextafter(middle, high)});
    expected.insert(expected.end(), {bits, bits % 2 == 0 ? bits : up, up});
  }
  EXPECT_EQ(ConvertAll<std::uint16_t>(DType::kF16, DType::kF32, values), expected);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(Float16FromFloat(values[i]), expected[i]) << values[i];
  EXPECT_EQ(BFloat16FromFloat(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(BFloat16FromFloat(1.0f + 0x1.8p-7f), 0x3F82);
  EXPECT_EQ(BFloat16FromFloat(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(ConvertTest, NarrowsWiderTypesTo16BitsWithoutRoundingTwice) {
  const double tie = 1.0 + 0x1p-8;  // halfway between two bf16; fp32 would drop the 2^-40 below
  const std::vector<double> doubles = {tie, tie + 0x1p-40, -tie - 0x1p-40, 1e300, 0x1p-26 + 0x1p-60};
  const std::vector<std::uint16_t> bf16 = ConvertAll<std::uint16_t>(DType::kBF16, DType::kF64, doubles);
  EXPECT_EQ(bf16[0], 0x3F80);
  EXPECT_EQ(bf16[1], 0x3F81);
  EXPECT_EQ(bf16[2], 0xBF81);
  EXPECT_EQ(bf16[3], 0x7F80);
  EXPECT_EQ(ConvertAll<std::uint16_t>(DType::kF16, DType::kF64, std::vector<double>{0x1p-25 + 0x1p-60})[0], 1);
  const std::int64_t integer_tie = (std::int64_t{1} << 60) + (std::int64_t{1} << 52);
  const std::vector<std::int64_t> integers = {integer_tie, integer_tie + 1, -integer_tie - 1};
  const std::vector<std::uint16_t> from_i64 = ConvertAll<std::uint16_t>(DType::kBF16, DType::kI64, integers);
  EXPECT_EQ(from_i64[0] + 1, from_i64[1]);
  EXPECT_EQ(from_i64[1] | 0x8000, from_i64[2]);
  constexpr std::uint64_t kLargeTie = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 55);
  const std::vector<std::uint64_t> naturals = {kLargeTie, kLargeTie + 1};
  const std::vector<std::uint16_t> from_u64 = ConvertAll<std::uint16_t>(DType::kBF16, DType::kU64, naturals);
  EXPECT_EQ(from_u64[0] + 1, from_u64[1]);
}

TEST(ConvertTest, FloatToIntegerRoundsToEvenAndSaturates) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.5f, 1.5f, -2.5f, 300.0f, -300.0f, inf, -inf, nan};
  EXPECT_EQ(ConvertAll<std::int8_t>(DType::kI8, DType::kF32, values),
            (std::vector<std::int8_t>{0, 2, -2, 127, -128, 127, -128, 0}));
  EXPECT_EQ(ConvertAll<std::uint8_t>(DType::kU8, DType::kF32, values),
            (std::vector<std::uint8_t>{0, 2, 0, 255, 0, 255, 0, 0}));
  const std::vector<std::int64_t> wide = ConvertAll<std::int64_t>(DType::kI64, DType::kF32, values);
  EXPECT_EQ(wide[5], std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(wide[6], std::numeric_limits<std::int64_t>::min());
  const std::vector<std::uint64_t> natural = ConvertAll<std::uint64_t>(DType::kU64, DType::kF32, values);
  EXPECT_EQ(natural[5], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(natural[6], 0);
}

TEST(ConvertTest, SmallIntegersAreExactBetweenAllTypes) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      if (!Converts(from, to)) continue;
      for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
        for (std::int64_t count : {0, 1, 5, 64, 67, 100}) {
          for (std::int64_t offset : {0, 1, 3}) {
            std::vector<std::uint8_t> src(2048), dst(2048, 0xA5);
            for (std::int64_t i = 0; i < count; ++i) StoreNumber(from, src.data(), offset + i, {i * 1.0L, 1});
            Convert(to, dst.data() + offset * SizeOf(to), from, src.data() + offset * SizeOf(from), count, stores);
            for (std::int64_t i = 0; i < count; ++i) {
              ASSERT_EQ(LoadNumber(to, dst.data(), offset + i), LoadNumber(from, src.data(), offset + i))
                  << Name(from) << " to " << Name(to);
            }
            ASSERT_EQ(dst[static_cast<std::size_t>((offset + count) * SizeOf(to))], 0xA5);
          }
        }
      }
    }
  }
}

TEST(ConvertTest, IntegersSaturate) {
  const std::vector<std::int64_t> values = {-1, 256, 1LL << 40, -(1LL << 40), 100};
  EXPECT_EQ(ConvertAll<std::uint8_t>(DType::kU8, DType::kI64, values),
            (std::vector<std::uint8_t>{0, 255, 255, 0, 100}));
  EXPECT_EQ(ConvertAll<std::int32_t>(DType::kI32, DType::kI64, values),
            (std::vector<std::int32_t>{-1, 256, std::numeric_limits<std::int32_t>::max(),
                                       std::numeric_limits<std::int32_t>::min(), 100}));
  EXPECT_EQ(ConvertAll<std::uint64_t>(DType::kU64, DType::kI64, values),
            (std::vector<std::uint64_t>{0, 256, 1ULL << 40, 0, 100}));
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::vector<std::uint64_t> natural = {0, 1ULL << 63, kMax};
  EXPECT_EQ(ConvertAll<std::int64_t>(DType::kI64, DType::kU64, natural),
            (std::vector<std::int64_t>{0, std::numeric_limits<std::int64_t>::max(),
                                       std::numeric_limits<std::int64_t>::max()}));
  EXPECT_EQ(ConvertAll<std::uint16_t>(DType::kU16, DType::kU64, natural),
            (std::vector<std::uint16_t>{0, 65535, 65535}));
  EXPECT_EQ(ConvertAll<double>(DType::kF64, DType::kU64, natural), (std::vector<double>{0, 0x1p63, 0x1p64}));
}

TEST(ConvertTest, CopiesKeepEveryBit) {
  const std::vector<std::uint16_t> bits = AllBits();  // signalling NaN too
  for (Stores stores : {Stores::kCached, Stores::kStreaming}) {
    EXPECT_EQ(ConvertAll<std::uint16_t>(DType::kF16, DType::kF16, bits, stores), bits);
  }
  std::vector<std::uint16_t> in_place = bits;
  Convert(DType::kBF16, in_place.data(), DType::kBF16, in_place.data(), 1 << 16, Stores::kCached);
  EXPECT_EQ(in_place, bits);
}

}  // namespace
}  // namespace tutti::kernels
