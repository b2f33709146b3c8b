// Calls that wait to be used again, taken and given back by several threads.
#include "engine/call_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "engine/program.h"
#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

class CallPoolTest : public ::testing::Test {
 protected:
  TwoRanks world_{/*mapped=*/true};
  std::shared_ptr<std::atomic<std::int64_t>> idle_bytes_ = std::make_shared<std::atomic<std::int64_t>>(0);
  std::shared_ptr<CallPool> pool_ = std::make_shared<CallPool>(SomeProgram(), *world_.ranks[0].channel, idle_bytes_);
};

TEST_F(CallPoolTest, GivesOutWhatCameBack) {
  EXPECT_EQ(pool_->TakeIdle(), nullptr);
  Call* const first = pool_->Take();
  Call* const second = pool_->Take();
  EXPECT_NE(first, second);
  first->Release();
  second->Release();
  Call* const again = pool_->Take();
  Call* const other = pool_->Take();
  EXPECT_TRUE((again == first && other == second) || (again == second && other == first));
  again->Release();
  other->Release();
  pool_->Close();
}

TEST_F(CallPoolTest, OnceClosedKeepsNothing) {
  Call* const call = pool_->Take();
  Call* const idle = pool_->Take();
  idle->Release();
  pool_->Close();
  EXPECT_EQ(pool_->TakeIdle(), nullptr);
  call->Release();  // deleted: AddressSanitizer would tell of a leak
  EXPECT_EQ(pool_->TakeIdle(), nullptr);
}

TEST_F(CallPoolTest, NoCallIsInTwoHands) {
  std::atomic<int> twice = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 5'000; ++i) {
        Call* const call = pool_->Take();
        // A call that another thread has, too, has another mark when this thread looks again.
        Call* const mark = reinterpret_cast<Call*>(static_cast<std::uintptr_t>(thread + 1));
        call->next_submitted.store(mark);
        if (i % 64 == 0) std::this_thread::yield();
        twice += call->next_submitted.load() != mark ? 1 : 0;
        call->Release();
        if (i % 512 == 0) pool_->DropIdle();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice, 0);
  pool_->Close();
  EXPECT_EQ(*idle_bytes_, 0);
}

}  // namespace
}  // namespace tutti
