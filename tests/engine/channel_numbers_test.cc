// Which numbers channels get, and when a number is given again.
#include "engine/channel_numbers.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "engine/control_block.h"

namespace tutti {
namespace {

TEST(ChannelNumbers, AreFreshAtFirst) {
  ChannelNumbers numbers(/*most=*/10, /*least_free=*/2);
  EXPECT_EQ(numbers.Take(), 1u);
  numbers.Close(1, nullptr, {});
  EXPECT_EQ(numbers.Take(), 2u);
  numbers.Close(2, nullptr, {});
  EXPECT_EQ(numbers.Take(), 3u);
}

TEST(ChannelNumbers, AreGivenAgainWhenOthersHaveBeenClosedSince) {
  ChannelNumbers numbers(10, 2);
  for (std::uint32_t number = 1; number <= 3; ++number) {
    EXPECT_EQ(numbers.Take(), number);
    numbers.Close(number, nullptr, {});
  }
  EXPECT_EQ(numbers.Take(), 1u);
  EXPECT_EQ(numbers.Take(), 4u) << "2 and 3 are too young";
  numbers.Close(1, nullptr, {});
  EXPECT_EQ(numbers.Take(), 2u);
}

TEST(ChannelNumbers, ThousandsOfChannelsNeedFewNumbers) {
  ChannelNumbers numbers(1000, 100);
  for (int i = 0; i < 100'000; ++i) {
    const std::optional<std::uint32_t> number = numbers.Take();
    ASSERT_TRUE(number.has_value()) << i;
    ASSERT_LE(*number, 101u);
    numbers.Close(*number, nullptr, {});
  }
}

TEST(ChannelNumbers, EndWhenAllAreInUse) {
  ChannelNumbers numbers(3, 1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(numbers.Take().has_value());
  EXPECT_EQ(numbers.Take(), std::nullopt);
  numbers.Close(2, nullptr, {});
  EXPECT_EQ(numbers.Take(), std::nullopt) << "what is sent to it may still arrive";
  numbers.Close(3, nullptr, {});
  EXPECT_EQ(numbers.Take(), 2u);
}

TEST(ChannelNumbers, WaitForPeersOnOtherNodes) {
  ChannelNumbers numbers(2, 1);
  numbers.Take();
  numbers.Take();
  numbers.Close(1, nullptr, {5, 6});
  numbers.Close(2, nullptr, {});
  EXPECT_EQ(numbers.Take(), std::nullopt);
  EXPECT_TRUE(numbers.IsClosed(1));
  numbers.RememberLeft(1, 5);
  EXPECT_FALSE(numbers.IsClosed(7));
  numbers.RememberLeft(7, 5);  // of a channel that is not closed: nothing happens
  EXPECT_EQ(numbers.Take(), std::nullopt);
  numbers.RememberLost(6);
  EXPECT_EQ(numbers.Take(), 1u);
}

TEST(ChannelNumbers, WaitForPeersOnThisNode) {
  auto block = std::make_unique<ControlBlock>();
  const auto borrowers = std::make_shared<const Borrowers>(Borrowers{{block.get(), 0}});
  ChannelNumbers numbers(2, 1);
  numbers.Take();
  numbers.Take();
  numbers.Close(1, borrowers, {});
  numbers.Close(2, nullptr, {});
  EXPECT_EQ(numbers.Take(), std::nullopt);
  block->generation = 1;
  EXPECT_EQ(numbers.Take(), 1u);
}

}  // namespace
}  // namespace tutti
