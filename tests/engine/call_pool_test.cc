// The pool of calls that wait to be used again: calls are taken and given back by several threads.
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
  ~CallPoolTest() override { idle_->Close(); }

  std::shared_ptr<CallPool> NewPool() {
    return std::make_shared<CallPool>(SomeProgram(), *world_.ranks[0].channel, idle_, nullptr, BufferBytes{});
  }

  // The functions that give calls away, which are deleted here.
  static void Close(CallPool& pool) {
    UnusedCalls unused;
    pool.Close(unused);
  }
  static Call* TakeIdle(CallPool& pool) {
    UnusedCalls unused;
    return pool.TakeIdle(unused);
  }
  static void GiveIdle(CallPool& pool) {
    UnusedCalls unused;
    pool.GiveIdle(unused);
  }

  // The place that all pools of the tests share, since their programs have one spec.
  std::size_t Place() const { return IdleCalls::PlaceOf(pool_->spec()); }

  TwoRanks world_{/*mapped=*/true};
  std::shared_ptr<IdleCalls> idle_ = std::make_shared<IdleCalls>();
  std::shared_ptr<CallPool> pool_ = NewPool();
};

TEST_F(CallPoolTest, GivesOutWhatCameBack) {
  EXPECT_EQ(TakeIdle(*pool_), nullptr);
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
  Close(*pool_);
}

TEST_F(CallPoolTest, OnceClosedKeepsNothing) {
  Call* const call = pool_->Take();
  Call* const idle = pool_->Take();
  idle->Release();
  Close(*pool_);
  EXPECT_EQ(TakeIdle(*pool_), nullptr);
  call->Release();  // the call is deleted: otherwise AddressSanitizer would report a leak
  EXPECT_EQ(TakeIdle(*pool_), nullptr);
}

TEST_F(CallPoolTest, PoolsOfOneSpecShareAPlace) {
  const std::shared_ptr<CallPool> other = NewPool();
  Call* const mine = pool_->Take();
  Call* const its = other->Take();
  its->Release();   // the call now waits in the place that both pools share
  mine->Release();  // the call now waits in its pool
  EXPECT_EQ(TakeIdle(*pool_), mine);
  EXPECT_EQ(TakeIdle(*pool_), nullptr);  // puts the other pool's call back
  EXPECT_EQ(TakeIdle(*other), its);
  EXPECT_EQ(idle_->Take(Place()), nullptr);
  mine->Release();
  EXPECT_EQ(idle_->Take(Place()), mine);
  EXPECT_TRUE(CallPool::PutBack(mine));
  its->Release();
  Close(*pool_);
  Close(*other);
  EXPECT_EQ(idle_->Take(Place()), nullptr);
}

TEST_F(CallPoolTest, ACallReleasedAfterAllIsClosedIsDeleted) {
  Call* const call = pool_->Take();
  Close(*pool_);
  idle_->Close();
  call->Release();  // the call is deleted: otherwise AddressSanitizer would report a leak
  EXPECT_EQ(idle_->Take(Place()), nullptr);
}

TEST_F(CallPoolTest, NoCallIsInTwoHands) {
  std::atomic<int> twice = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 5'000; ++i) {
        Call* const call = pool_->Take();
        // If another thread got this call, too, this thread would find that thread's mark.
        Call* const mark = reinterpret_cast<Call*>(static_cast<std::uintptr_t>(thread + 1));
        call->next_submitted.store(mark);
        if (i % 64 == 0) std::this_thread::yield();
        twice += call->next_submitted.load() != mark ? 1 : 0;
        call->Release();
        if (i % 512 == 0) GiveIdle(*pool_);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(twice, 0);
  Close(*pool_);
  EXPECT_EQ(idle_->bytes(), 0);
}

}  // namespace
}  // namespace tutti
