// The random numbers of stochastic rounding never change, and are random enough.
#include "tutti/codecs/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace tutti::kernels {
namespace {

constexpr int kWords = 1 << 16;

TEST(RandomTest, TheNumbersNeverChange) {
  const RandomStream stream = MakeRandomStream(1, 2, 3);
  EXPECT_EQ(RandomWord(stream, 0), 558626666u);
  EXPECT_EQ(RandomWord(stream, 1), 2812621559u);
  EXPECT_EQ(RandomWord(MakeRandomStream(0, 0, 0), 1000000), 3873044930u);
}

TEST(RandomTest, UnitsAreBelowOne) {
  EXPECT_EQ(UnitFromWord(0), 0.0f);
  EXPECT_LT(UnitFromWord(0xFFFFFFFF), 1.0f);
}

// Every bit is set half of the time, and the bits of neighbours, of neighbouring streams and of neighbouring draws
// differ half of the time: within six standard deviations.
TEST(RandomTest, BitsAreFairAndIndependent) {
  const std::array<RandomStream, 4> streams = {MakeRandomStream(0, 0, 0), MakeRandomStream(1, 0, 0),
                                               MakeRandomStream(0, 1, 0), MakeRandomStream(0, 0, 1)};
  for (int bit = 0; bit < 32; ++bit) {
    std::array<int, 6> counts = {};
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint32_t word = RandomWord(streams[0], i);
      const auto differs = [&](std::uint32_t other) { return (word ^ other) >> bit & 1; };
      counts[0] += differs(0);
      counts[1] += differs(RandomWord(streams[0], i + 1));
      counts[2] += differs(RandomWord(streams[0], i + 1024));
      for (std::size_t k = 1; k < 4; ++k) counts[2 + k] += differs(RandomWord(streams[k], i));
    }
    for (int count : counts) EXPECT_LT(std::abs(count - kWords / 2), 6 * std::sqrt(kWords) / 2) << "bit " << bit;
  }
}

}  // namespace
}  // namespace tutti::kernels
