#include "engine/host_compute.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tutti {
namespace {

// From now on this thread takes subnormal numbers for zero, as after torch.set_flush_denormal(True). False where the
// test does not know how.
bool FlushSubnormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
  return true;
#elif defined(__aarch64__)
  std::uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  asm volatile("msr fpcr, %0" : : "r"(mode | std::uint64_t{1} << 24));
  return true;
#else
  return false;
#endif
}

float FromBits(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Whether this thread takes subnormal numbers for zero; the product is made at run time.
bool FlushesSubnormals() {
  const volatile float subnormal = FromBits(1), one = 1.0f;
  const float product = subnormal * one;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &product, sizeof(bits));
  return bits == 0;
}

// The bits of what `instruction` makes of two sources of `count` subnormal numbers.
std::vector<std::uint32_t> Results(const Instruction& instruction) {
  const auto count = static_cast<std::size_t>(instruction.count);
  std::vector<std::uint32_t> a(count), b(count), result(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = static_cast<std::uint32_t>(2 * i + 1);
    b[i] = static_cast<std::uint32_t>(3 * i + 5);
  }
  const void* const srcs[] = {a.data(), b.data()};
  void* const dsts[] = {result.data()};
  const Program program;
  EXPECT_EQ(Compute(program, instruction, dsts, srcs, 0, 1.0), absl::OkStatus());
  return result;
}

// A user's thread that waits for its call computes steps, too: what the thread does with subnormal numbers must not
// show in the results.
TEST(HostComputeTest, BitsDoNotDependOnTheModeOfTheThread) {
  constexpr std::int64_t kCount = 67;  // whole vectors and a rest
  Instruction sum;
  sum.kind = StepKind::kReduce;
  sum.count = kCount;
  Instruction scale;
  scale.kind = StepKind::kScale;
  scale.count = kCount;
  scale.divisor = 3;
  bool flushes = false, flushes_within = false, flushes_after = false;
  std::vector<std::uint32_t> sums, quotients;
  std::thread user([&] {
    flushes = FlushSubnormals();
    flushes_within = FlushesSubnormals();
    sums = Results(sum);
    quotients = Results(scale);
    flushes_after = FlushesSubnormals();
  });
  user.join();
  if (!flushes) GTEST_SKIP() << "the mode of this processor stays as it is";
  EXPECT_TRUE(flushes_within);
  EXPECT_TRUE(flushes_after) << "the mode of the thread is what it was";
  EXPECT_EQ(sums, Results(sum));
  EXPECT_EQ(quotients, Results(scale));
  for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], 5 * i + 6) << "a sum of subnormal numbers, " << i;
}

}  // namespace
}  // namespace tutti
