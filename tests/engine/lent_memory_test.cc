#include "engine/lent_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <utility>

#include "memory/arena.h"

namespace tutti {
namespace {

// An arena of 8 MB, with control blocks that stand for those of peers.
class LentMemoryTest : public ::testing::Test {
 protected:
  LentMemoryTest() {
    absl::StatusOr<std::unique_ptr<Transport>> transport =
        MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 8 << 20});
    EXPECT_TRUE(transport.ok());
    arena_ = std::make_shared<Arena>(*std::move(transport), 0);
  }

  Buffer Piece(std::int64_t bytes) {
    absl::StatusOr<Buffer> buffer = arena_->Allocate(bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  bool HasRoom(std::int64_t bytes) { return arena_->Allocate(bytes).ok(); }

  std::shared_ptr<Arena> arena_;
  std::unique_ptr<ControlBlock> first_ = std::make_unique<ControlBlock>();
  std::unique_ptr<ControlBlock> second_ = std::make_unique<ControlBlock>();
  std::shared_ptr<const Borrowers> both_ =
      std::make_shared<const Borrowers>(Borrowers{{first_.get(), 0}, {second_.get(), 0}});
};

TEST_F(LentMemoryTest, ComesBackWhenEveryPeerHasCompletedTheRun) {
  LentMemory lent;
  lent.Keep(Piece(6 << 20), both_, /*lane=*/2, /*run=*/5);
  EXPECT_FALSE(HasRoom(4 << 20));
  first_->lanes[2].completed = 5;
  second_->lanes[2].completed = 4;
  second_->lanes[1].completed = 9;
  lent.Sweep();
  EXPECT_FALSE(HasRoom(4 << 20));
  second_->lanes[2].completed = 6;
  lent.Sweep();
  EXPECT_TRUE(HasRoom(4 << 20));
}

TEST_F(LentMemoryTest, ComesBackWhenAPeerHasLeft) {
  LentMemory lent;
  lent.Keep(Piece(6 << 20), both_, 0, 1);
  first_->lanes[0].completed = 1;
  second_->generation = 1;
  lent.Sweep();
  EXPECT_TRUE(HasRoom(4 << 20));
}

TEST_F(LentMemoryTest, ComesBackWhenAPeerHasEndedWithoutClosing) {
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto borrowers =
      std::make_shared<const Borrowers>(Borrowers{{first_.get(), 0, ended}, {second_.get(), 0, nullptr}});
  ControlBlocks blocks(arena_);
  LentMemory lent;
  ControlBlock* const block = *blocks.Open();
  blocks.Close(block, borrowers, {1});
  lent.KeepUntilClosed(Piece(5 << 20), borrowers);
  second_->generation = 1;
  lent.Sweep();
  EXPECT_FALSE(HasRoom(4 << 20));
  *ended = true;
  lent.Sweep();
  EXPECT_TRUE(HasRoom(4 << 20));
  EXPECT_EQ(*blocks.Open(), block);
}

TEST_F(LentMemoryTest, IsSweptWhereMoreIsLent) {
  LentMemory lent;
  lent.Keep(Piece(6 << 20), both_, 0, 1);
  first_->lanes[0].completed = second_->lanes[0].completed = 1;
  lent.Keep(Piece(64), both_, 0, 2);
  EXPECT_TRUE(HasRoom(4 << 20));
}

TEST_F(LentMemoryTest, OfAFailedCallIsKeptUntilThePeersHaveClosed) {
  LentMemory lent;
  lent.KeepUntilClosed(Piece(6 << 20), both_);
  first_->lanes[0].completed = second_->lanes[0].completed = 1'000'000;
  ++first_->generation;
  lent.Sweep();
  EXPECT_FALSE(HasRoom(4 << 20));
  ++second_->generation;
  lent.Sweep();
  EXPECT_TRUE(HasRoom(4 << 20));
}

TEST_F(LentMemoryTest, AControlBlockIsOpenedAgainWhenItsPeersHaveLeft) {
  ControlBlocks blocks(arena_);
  absl::StatusOr<ControlBlock*> block = blocks.Open();
  ASSERT_TRUE(block.ok());
  const std::uint64_t generation = (*block)->generation;
  (*block)->halves[1][0].signal = 3 << 16 | 1;
  (*block)->lanes[1].completed = 3;
  blocks.Close(*block, both_, {0, 3, 0, 0});
  EXPECT_EQ((*block)->generation, generation + 1);

  absl::StatusOr<ControlBlock*> other = blocks.Open();
  ASSERT_TRUE(other.ok());
  EXPECT_NE(*other, *block);
  // Peers still see which runs the owner has completed.
  EXPECT_EQ((*block)->lanes[1].completed, 3u);

  first_->lanes[1].completed = 3;
  second_->lanes[1].completed = 3;
  absl::StatusOr<ControlBlock*> again = blocks.Open();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *block);
  EXPECT_EQ((*again)->generation, generation + 2);
  EXPECT_EQ((*again)->halves[1][0].signal, 0u);
  EXPECT_EQ((*again)->lanes[1].completed, 0u);
}

TEST_F(LentMemoryTest, ManyBlocksInTurnNeedTheRoomOfFew) {
  ControlBlocks blocks(arena_);
  std::set<ControlBlock*> used;
  for (int round = 0; round < 1000; ++round) {
    absl::StatusOr<ControlBlock*> block = blocks.Open();
    ASSERT_TRUE(block.ok()) << block.status();
    used.insert(*block);
    blocks.Close(*block, std::make_shared<const Borrowers>(), {});
  }
  EXPECT_EQ(used.size(), 1u);
}

TEST_F(LentMemoryTest, AFullArenaReclaimsFirst) {
  Buffer idle = Piece(6 << 20);
  EXPECT_FALSE(HasRoom(4 << 20));
  arena_->SetReclaim([&] { idle = Buffer(); });
  EXPECT_TRUE(HasRoom(4 << 20));
  arena_->SetReclaim(nullptr);
}

}  // namespace
}  // namespace tutti
