#include "memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kRegion = 64 * kPage;

// The arenas of the ranks of one world.
class ArenaTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 16;

  ArenaTest() {
    const std::shared_ptr<InprocHub> hub = MakeInprocHub(kRanks);
    for (Rank rank = 0; rank < kRanks; ++rank) {
      absl::StatusOr<std::unique_ptr<Transport>> transport = MakeInprocTransport(hub, {.region_bytes = kRegion});
      EXPECT_TRUE(transport.ok()) << transport.status();
      arenas_.push_back(std::make_shared<Arena>(*std::move(transport), rank));
    }
  }

  std::vector<std::shared_ptr<Arena>> arenas_;
};

TEST_F(ArenaTest, LargeBlocksOfRanksStartAtDifferentPlacesInTheirPages) {
  for (const int ranks : {2, 4, 8, 16}) {
    std::set<std::int64_t> places;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const absl::StatusOr<Buffer> buffer = arenas_[rank]->Allocate(2 * kPage);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      places.insert(arenas_[rank]->OffsetOf(buffer->data()) % kPage);
    }
    // As far from each other as they can be: a page holds so many such steps.
    for (std::int64_t place = 0; place < kPage; place += kPage / ranks) EXPECT_TRUE(places.contains(place)) << place;
  }
}

TEST_F(ArenaTest, BlocksShareNoLineAndStayInside) {
  for (const std::shared_ptr<Arena>& arena : arenas_) {
    std::vector<Buffer> buffers;
    std::set<std::int64_t> lines;
    std::int64_t total = 0;
    for (const std::int64_t bytes :
         {std::int64_t{1}, std::int64_t{65}, kPage, kPage + 1, 3 * kPage, std::int64_t{64}}) {
      absl::StatusOr<Buffer> buffer = arena->Allocate(bytes);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      const std::int64_t first = arena->OffsetOf(buffer->data()) / 64;
      const std::int64_t last = (arena->OffsetOf(buffer->data()) + bytes - 1) / 64;
      EXPECT_EQ(arena->OffsetOf(buffer->data()) % 64, 0);
      EXPECT_LT(last * 64, kRegion);
      for (std::int64_t line = first; line <= last; ++line) lines.insert(line);
      total += last - first + 1;
      buffers.push_back(*std::move(buffer));
    }
    EXPECT_EQ(static_cast<std::int64_t>(lines.size()), total);
  }
}

TEST_F(ArenaTest, GivesAgainWhatWasFreed) {
  for (const std::shared_ptr<Arena>& arena : arenas_) {
    std::int64_t offset = -1;
    for (int round = 0; round < 3; ++round) {
      const absl::StatusOr<Buffer> most = arena->Allocate(kRegion - kPage);
      ASSERT_TRUE(most.ok()) << most.status();
      if (round > 0) {
        EXPECT_EQ(arena->OffsetOf(most->data()), offset);
      }
      offset = arena->OffsetOf(most->data());
    }
  }
}

TEST_F(ArenaTest, SaysHowMuchIsFreeWhenItIsNotEnough) {
  const absl::StatusOr<Buffer> held = arenas_[0]->Allocate(kRegion / 2);
  const absl::StatusOr<Buffer> more = arenas_[0]->Allocate(kRegion);
  ASSERT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(more.status().message(),
              HasSubstr("262144 bytes asked for, the largest free piece has 131072 of 262144"));
  EXPECT_THAT(more.status().message(), HasSubstr("TUTTI_ARENA_BYTES"));
}

TEST_F(ArenaTest, RefusesLessThanNothing) {
  EXPECT_EQ(arenas_[0]->Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<Buffer> nothing = arenas_[0]->Allocate(0);
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing->data(), nullptr);
}

}  // namespace
}  // namespace tutti
