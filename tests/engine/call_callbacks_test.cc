// What Work::OnDone and Work::AwaitElsewhere promise.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/world.h"

namespace tutti {
namespace {

Work SumOf(Communicator& comm, float& value) { return comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum); }

TEST(Callbacks, RunWhenTheirOwnRunHasEnded) {
  constexpr int kRuns = 20'000;
  std::atomic<int> early = 0;
  std::atomic<int> called = 0;
  RunWorld(2, [&](Communicator& comm) {
    absl::StatusOr<BoundPlan> barrier = comm.Bind(CollectiveSpec{.collective = Collective::kBarrier}, {});
    ASSERT_TRUE(barrier.ok()) << barrier.status();
    for (int run = 0; run < kRuns; ++run) {
      const auto work = std::make_shared<Work>(barrier->Start());
      work->OnDone([&, work](const absl::Status& status) {
        early += work->done() ? 0 : 1;
        called += status.ok() ? 1 : 0;
      });
      ASSERT_EQ(work->Wait(), absl::OkStatus());
    }
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(called, 2 * kRuns);
}

// A callback whose thread has no processor for a millisecond counts as one that blocks, and the next one runs beside
// it, so the order is that in which the callbacks were given only where one thread has run all.
TEST(Callbacks, AllOfOneWorkRunInOrder) {
  constexpr int kTries = 100;
  for (int tries = 0; tries < kTries; ++tries) {
    std::mutex mutex;
    std::vector<int> order;
    std::set<std::thread::id> ran_on;
    std::latch registered(1);
    RunWorld(2, [&](Communicator& comm) {
      float value = 1;
      if (comm.rank() == 1) {
        registered.wait();
        ASSERT_EQ(comm.Send(&value, 1, DType::kF32, 0).Wait(), absl::OkStatus());
        return;
      }
      Work work = comm.Recv(&value, 1, DType::kF32, 1);
      for (int i = 0; i < 5; ++i) {
        work.OnDone([&, i](const absl::Status&) {
          const std::lock_guard lock(mutex);
          order.push_back(i);
          ran_on.insert(std::this_thread::get_id());
        });
      }
      registered.count_down();
      ASSERT_EQ(work.Wait(), absl::OkStatus());
    });  // communicators have run all callbacks when they are destroyed
    ASSERT_EQ(order.size(), 5u);
    if (ran_on.size() > 1) continue;
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
    return;
  }
  FAIL() << "callbacks ran on several threads " << kTries << " times";
}

// A callback may wait for a later one, also of the same Work: a future of torch has one of its own.
TEST(Callbacks, MayWaitForALaterOneOfTheSameWork) {
  std::latch later(1);
  RunWorld(2, [&](Communicator& comm) {
    float value = 1;
    if (comm.rank() == 1) {
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      ASSERT_EQ(comm.Send(&value, 1, DType::kF32, 0).Wait(), absl::OkStatus());
      return;
    }
    Work work = comm.Recv(&value, 1, DType::kF32, 1);
    work.OnDone([&](const absl::Status&) { later.wait(); });
    work.OnDone([&](const absl::Status&) { later.count_down(); });
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    later.wait();
  });
}

TEST(Callbacks, RunAtOnceWhenTheCallHasEnded) {
  RunWorld(2, [](Communicator& comm) {
    float value = 1;
    Work work = SumOf(comm, value);
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    std::thread::id thread;
    work.OnDone([&](const absl::Status&) { thread = std::this_thread::get_id(); });
    EXPECT_EQ(thread, std::this_thread::get_id());
  });
}

TEST(Callbacks, MaySubmitAndWait) {
  std::atomic<int> right = 0;
  RunWorld(2, [&](Communicator& comm) {
    float first = 1;
    float second = 10;
    std::latch done(1);
    Work work = SumOf(comm, first);
    work.OnDone([&](const absl::Status& status) {
      EXPECT_EQ(status, absl::OkStatus());
      EXPECT_EQ(SumOf(comm, second).Wait(), absl::OkStatus());
      right += second == 20 ? 1 : 0;
      done.count_down();
    });
    done.wait();  // nobody else drives the call
  });
  EXPECT_EQ(right, 2);
}

// A callback runs without a lock of the engine: calls go on beside a callback that blocks.
TEST(Callbacks, HoldUpNoCalls) {
  std::latch registered(1);
  std::latch began(1);
  std::latch may_end(1);
  RunWorld(2, [&](Communicator& comm) {
    float value = 1;
    Work work;
    if (comm.rank() == 0) {
      work = comm.Recv(&value, 1, DType::kF32, 1);
      work.OnDone([&](const absl::Status&) {
        began.count_down();
        may_end.wait();
      });
      registered.count_down();
    } else {
      registered.wait();
      work = comm.Send(&value, 1, DType::kF32, 0);
    }
    ASSERT_EQ(work.Wait(), absl::OkStatus());
    began.wait();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    if (comm.rank() == 0) may_end.count_down();
  });
}

TEST(Callbacks, HearOfErrors) {
  RunWorld(2, [](Communicator& comm) {
    float value = 1;
    absl::Status heard;
    std::latch done(1);
    Work work = comm.Recv(&value, 1, DType::kF32, 1 - comm.rank());
    work.OnDone([&](const absl::Status& status) {
      heard = status;
      done.count_down();
    });
    if (comm.rank() == 0) comm.Abort(absl::AbortedError("enough"));
    done.wait();
    EXPECT_EQ(heard.code(), absl::StatusCode::kAborted) << heard;
  });
}

// A communicator may be destroyed in a callback of one of its calls, by dropping the last reference there.
TEST(Callbacks, MayDestroyTheCommunicator) {
  std::atomic<int> destroyed = 0;
  RunWorld(2, [&](Communicator& comm) {
    absl::StatusOr<std::unique_ptr<Communicator>> child = comm.Split(0, comm.rank());
    ASSERT_TRUE(child.ok()) << child.status();
    auto owned = std::make_shared<std::unique_ptr<Communicator>>(*std::move(child));
    std::latch done(1);
    float value = 1;
    SumOf(**owned, value).OnDone([&, owned](const absl::Status& status) {
      EXPECT_EQ(status, absl::OkStatus());
      owned->reset();
      ++destroyed;
      done.count_down();
    });
    owned = nullptr;
    done.wait();
  });
  EXPECT_EQ(destroyed, 2);
}

TEST(Callbacks, AwaitElsewhereIsForgottenWhenTheCallEnds) {
  RunWorld(2, [](Communicator& comm) {
    for (int i = 0; i < 200; ++i) {
      float value = 1;
      std::latch done(1);
      Work work = SumOf(comm, value);
      work.AwaitElsewhere();
      work.AwaitElsewhere();  // a second AwaitElsewhere changes nothing
      work.OnDone([&](const absl::Status&) { done.count_down(); });
      done.wait();
      work.AwaitElsewhere();  // after the end of the call AwaitElsewhere changes nothing
      ASSERT_EQ(value, 2);
    }
  });
}

// In a world of one rank nothing else wakes the engine's thread. The call is too long to end while it is submitted.
TEST(Callbacks, RunWithoutAWaitOfACallerWhoPromisedToDrive) {
  for (const int size : {1, 2}) {
    RunWorld(size, [](Communicator& comm) {
      constexpr std::int64_t kCount = std::int64_t{1} << 20;
      std::vector<float> in(kCount, 1), out(kCount);
      std::promise<absl::Status> ended;
      Work work = comm.AllReduce(in.data(), out.data(), kCount, DType::kF32, ReduceOp::kSum, {.caller_drives = true});
      work.OnDone([&](const absl::Status& status) { ended.set_value(status); });
      std::future<absl::Status> future = ended.get_future();
      const bool called = future.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
      EXPECT_TRUE(called) << comm.size() << " ranks";
      EXPECT_EQ(called ? future.get() : work.Wait(), absl::OkStatus());
      if (!called) future.wait();
    });
  }
}

TEST(Callbacks, ThatAreNullDoNothing) {
  RunWorld(2, [](Communicator& comm) {
    Work().OnDone(nullptr);
    float value = 1;
    Work early = comm.Recv(&value, 1, DType::kF32, 1 - comm.rank());
    early.OnDone(nullptr);
    ASSERT_EQ(comm.Send(&value, 1, DType::kF32, 1 - comm.rank()).Wait(), absl::OkStatus());
    ASSERT_EQ(early.Wait(), absl::OkStatus());
    early.OnDone(nullptr);
  });
}

using CallbacksDeathTest = ::testing::Test;

// Otherwise the thread on which a callback happens to run would decide whether an exception can be caught.
TEST(CallbacksDeathTest, ThatThrowEndTheProcessWheneverTheyRun) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto throws = [](const absl::Status&) { throw std::runtime_error("of a callback"); };
  EXPECT_DEATH(Work(absl::OkStatus()).OnDone(throws), "of a callback");
  const auto after_the_end = [&](Communicator& comm) {
    Work barrier = comm.Barrier();
    (void)barrier.Wait();
    barrier.OnDone(throws);
  };
  EXPECT_DEATH(RunWorld(1, after_the_end), "of a callback");
  const auto before_the_end = [&](Communicator& comm) {
    float value = 1;
    Work late = comm.Recv(&value, 1, DType::kF32, 0);
    late.OnDone(throws);
    (void)comm.Send(&value, 1, DType::kF32, 0).Wait();
    (void)late.Wait();
  };
  EXPECT_DEATH(RunWorld(1, before_the_end), "of a callback");
}

}  // namespace
}  // namespace tutti
