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
    // The places are as far from each other as a page allows: its length divided by the number of ranks.
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

// The pages that `buffer` touches.
std::set<std::int64_t> PagesOf(const Arena& arena, const Buffer& buffer) {
  std::set<std::int64_t> pages;
  const std::int64_t first = arena.OffsetOf(buffer.data());
  for (std::int64_t page = first / kPage; page <= (first + buffer.bytes() - 1) / kPage; ++page) pages.insert(page);
  return pages;
}

TEST_F(ArenaTest, LargeBlocksShareNoPage) {
  for (const std::shared_ptr<Arena>& arena : arenas_) {
    std::vector<Buffer> buffers;
    for (const std::int64_t bytes :
         {std::int64_t{64}, 2 * kPage, std::int64_t{64}, kPage + 1, kPage, 3 * kPage - 1, kPage, 2 * kPage}) {
      absl::StatusOr<Buffer> buffer = arena->Allocate(bytes);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      buffers.push_back(*std::move(buffer));
    }
    buffers.erase(buffers.begin() + 3);  // the next block takes its place
    absl::StatusOr<Buffer> again = arena->Allocate(2 * kPage - 1);
    ASSERT_TRUE(again.ok()) << again.status();
    buffers.push_back(*std::move(again));
    for (const Buffer& large : buffers) {
      if (large.bytes() <= kPage) continue;
      EXPECT_EQ(arena->OwnPagesOf(large.data(), large.bytes()).size(), static_cast<std::size_t>(large.bytes()));
      const std::set<std::int64_t> pages = PagesOf(*arena, large);
      for (const Buffer& other : buffers) {
        if (&other == &large) continue;
        for (const std::int64_t page : PagesOf(*arena, other)) {
          EXPECT_FALSE(pages.contains(page)) << large.bytes() << " and " << other.bytes() << " bytes";
        }
      }
    }
  }
}

TEST_F(ArenaTest, ABlockThatWasWithdrawnServesPeersNoMore) {
  const std::shared_ptr<Arena>& arena = arenas_[0];
  absl::StatusOr<Buffer> other = arena->Allocate(40'000);
  std::byte* data = nullptr;
  {
    absl::StatusOr<Buffer> buffer = arena->Allocate(40'000);
    ASSERT_TRUE(other.ok() && buffer.ok());
    data = buffer->data();
    arena->Withdraw({data + 20'000, 10'000});
    EXPECT_FALSE(arena->Contains(data)) << "also the part of the block that was not withdrawn";
    EXPECT_FALSE(arena->Contains(data + 25'000));
    EXPECT_EQ(arena->OwnPagesOf(data, 40'000).size(), 40'000u) << "the other parts may still be shared";
    EXPECT_EQ(arena->OwnPagesOf(data, 2 * kPage).size(), static_cast<std::size_t>(2 * kPage));
    EXPECT_TRUE(arena->Contains(other->data()));
  }
  absl::StatusOr<Buffer> next = arena->Allocate(40'000);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->data() >= data + 40'000 || next->data() + 40'000 <= data) << "its pages are used again";
  EXPECT_TRUE(arena->Contains(next->data()));
}

TEST_F(ArenaTest, PartsOfABlockOwnTheirPagesWhereTheyEndWithThem) {
  Arena& arena = *arenas_[1];
  const absl::StatusOr<Buffer> buffer = arena.Allocate(3 * kPage);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  std::byte* const begin = buffer->data();
  std::byte* const end = begin + 3 * kPage;
  std::byte* const second_page = begin + kPage - arena.OffsetOf(begin) % kPage;
  const auto expect = [&](std::byte* data, std::int64_t bytes, std::byte* own, std::int64_t own_bytes) {
    const absl::Span<std::byte> pages = arena.OwnPagesOf(data, bytes);
    EXPECT_EQ(pages.size(), static_cast<std::size_t>(own_bytes));
    EXPECT_EQ(own_bytes > 0 ? pages.data() : own, own);
  };
  expect(begin, 3 * kPage, begin, 3 * kPage);
  expect(begin, second_page - begin, begin, second_page - begin);
  expect(second_page, kPage, second_page, kPage);
  expect(second_page, end - second_page, second_page, end - second_page);
  // A page that the part shares with the rest of its block is left out.
  std::byte* const last_page = second_page + 2 * kPage;
  expect(begin, 3 * kPage - 1, begin, last_page - begin);
  expect(begin + 1, 3 * kPage - 1, second_page, end - second_page);
  expect(begin + 1, 10, nullptr, 0);
  expect(begin, 3 * kPage + 1, begin, last_page - begin);
  std::vector<std::byte> outside(3 * kPage);
  expect(outside.data(), 3 * kPage, nullptr, 0);
}

TEST_F(ArenaTest, BlocksTakeLessThanTwoPagesMoreThanTheirBytes) {
  for (const std::shared_ptr<Arena>& arena : arenas_) {
    for (std::int64_t bytes = kPage + 1; bytes <= 3 * kPage; bytes += 1000) {
      const absl::StatusOr<Buffer> first = arena->Allocate(bytes);
      const absl::StatusOr<Buffer> next = arena->Allocate(bytes);
      ASSERT_TRUE(first.ok() && next.ok());
      EXPECT_LT(next->data() - first->data(), bytes + 2 * kPage);
    }
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
