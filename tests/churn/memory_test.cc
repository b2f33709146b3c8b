// Tests of the checks of memory: each kind of wrong contents is found.
#include "tests/churn/memory.h"

#include <gtest/gtest.h>

#include "tests/churn/calls.h"
#include "tests/harness/world.h"

namespace tutti::churn {
namespace {

int Value(std::int64_t i) { return static_cast<int>(i % kPeriod); }

TEST(MemoryTest, FirstWrongFindsAChangedElementOfEveryType) {
  for (const DType dtype : kAllDTypes) {
    for (const std::int64_t count : {1, 13, 5000}) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(count * SizeOf(dtype)));
      Fill(bytes.data(), dtype, count, Value);
      EXPECT_EQ(FirstWrong(bytes.data(), dtype, count, Value), std::nullopt);
      EXPECT_EQ(NumberAt(bytes.data(), dtype, count - 1), Value(count - 1));
      bytes.back() ^= std::byte{1};
      EXPECT_EQ(FirstWrong(bytes.data(), dtype, count, Value), count - 1) << Name(dtype) << " " << count;
    }
  }
}

TEST(MemoryTest, PoisonShowsAWrite) {
  RunWorld(1, [](Communicator& world) {
    for (const bool in_arena : {false, true}) {
      absl::StatusOr<Memory> memory = Memory::Make(world, 1000, in_arena);
      ASSERT_TRUE(memory.ok()) << memory.status();
      memory->Poison();
      EXPECT_EQ(memory->FirstWritten(), std::nullopt);
      memory->data()[999] = std::byte{0};
      EXPECT_EQ(memory->FirstWritten(), 999);
    }
  });
}

TEST(CallsTest, ValuesRepeatAfterAPeriodAndDifferBetweenRanksAndCalls) {
  const SharedCall call;
  SharedCall next;
  next.salt = 1;
  EXPECT_EQ(InputValue(call, 1, 5), InputValue(call, 1, 5 + kPeriod));
  EXPECT_NE(InputValue(call, 1, 5), InputValue(call, 2, 5));
  EXPECT_NE(InputValue(call, 1, 5), InputValue(next, 1, 5));
}

}  // namespace
}  // namespace tutti::churn
