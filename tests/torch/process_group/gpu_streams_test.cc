// What waits for what when process groups work on GPUs; GPU, CUDA and NCCL are fakes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/torch/fake_gpu.h"
#include "tests/torch/process_group/group_of_threads.h"
#include "tests/torch/process_group/no_interpreter.h"

namespace tutti::dist {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Device GpuOf(const ::c10d::Backend& group) { return Gpu(group.getRank()); }

// A call that everything has been set up for: NCCL connects ranks in the first one.
void WarmUp(::c10d::Backend& group) {
  Tensors tensors = {torch::ones({8}, GpuOf(group))};
  group.allreduce(tensors)->wait();
  CurrentStream(group.getRank()).synchronize();
}

// Rank 1 makes its call once rank 0 has let it: what rank 0 does before cannot wait for the result.
struct LateRank {
  std::promise<void> promise;
  std::shared_future<void> may_call = promise.get_future().share();
};

TEST(GpuStreamsTest, ACallBeginsAfterWhatIsOnTheCurrentStream) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    const c10::StreamGuard guard(AnotherStream(group.getRank()));
    StreamGate gate(group.getRank());
    Tensors tensors = {torch::empty({8}, GpuOf(group))};
    tensors[0].fill_(1 + group.getRank());
    const auto work = group.allreduce(tensors);
    EXPECT_FALSE(work->isCompleted());
    gate.Open();
    work->wait();
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({8}, 3.0F)));
    while (!work->isCompleted()) std::this_thread::yield();
    EXPECT_TRUE(work->isSuccess());
  });
}

TEST(GpuStreamsTest, WaitIsAWaitOfTheCurrentStreamAlone) {
  LateRank late;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    const int rank = group.getRank();
    Tensors tensors = {torch::ones({8}, GpuOf(group))};
    CurrentStream(rank).synchronize();
    if (rank == 1) late.may_call.wait();
    const auto work = group.allreduce(tensors);
    const c10::Stream other = AnotherStream(rank);
    if (rank == 0) {
      const c10::StreamGuard guard(other);
      work->wait();
      work->synchronize();
      EXPECT_FALSE(other.query());
    }
    // The stream that does not wait has the old values still.
    if (rank == 0) {
      EXPECT_TRUE(tensors[0].cpu().equal(torch::ones({8})));
      late.promise.set_value();
    }
    const c10::StreamGuard guard(other);
    work->wait();
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({8}, 2.0F)));
  });
}

TEST(GpuStreamsTest, BlockCurrentStreamIsAWaitOfTheCurrentStreamAlone) {
  for (const bool coalesced : {false, true}) {
    LateRank late;
    RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
      WarmUp(group);
      const int rank = group.getRank();
      Tensors tensors = {torch::ones({8}, GpuOf(group))};
      CurrentStream(rank).synchronize();
      if (rank == 1) late.may_call.wait();
      if (coalesced) group.startCoalescing();
      auto work = group.allreduce(tensors);
      if (coalesced) work = group.endCoalescing();
      const c10::StreamGuard guard(AnotherStream(rank));
      work->blockCurrentStream();
      if (rank == 0) {
        EXPECT_FALSE(CurrentStream(0).query());
        late.promise.set_value();
      }
      EXPECT_TRUE(tensors[0].cpu().equal(torch::full({8}, 2.0F)));
    });
  }
}

TEST(GpuStreamsTest, WithATimeoutTheHostWaits) {
  LateRank late;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    Tensors tensors = {torch::ones({8}, GpuOf(group))};
    if (group.getRank() == 1) late.may_call.wait();
    const auto work = group.allreduce(tensors);
    if (group.getRank() == 0) {
      EXPECT_THROW(work->wait(std::chrono::milliseconds(1)), c10::DistBackendError);
      late.promise.set_value();
    }
    work->wait(std::chrono::seconds(60));
    EXPECT_TRUE(work->isCompleted());
  });
}

TEST(GpuStreamsTest, AFutureIsCompleteAtOnceAndItsCallbacksHaveTheResult) {
  LateRank late;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    // A strided tensor: the result is copied.
    Tensors tensors = {torch::ones({4, 2}, GpuOf(group)).t()};
    if (group.getRank() == 1) late.may_call.wait();
    const auto future = group.allreduce(tensors)->getFuture();
    EXPECT_TRUE(future->completed());
    const auto child = future->then([](c10::ivalue::Future& done) { return done.value().toTensorVector().at(0) * 10; },
                                    c10::TensorType::get());
    if (group.getRank() == 0) {
      CurrentStream(0).synchronize();  // the current stream does not wait for the result
      late.promise.set_value();
    }
    child->wait();
    EXPECT_TRUE(child->value().toTensor().cpu().equal(torch::full({2, 4}, 20.0F)));
  });
}

// The host is only so many calls ahead of the GPU. Then a stream can wait for a call once the peers have made earlier
// ones, for which they need the interpreter's lock.
TEST(GpuStreamsTest, AFutureIsMadeWithoutTheInterpretersLock) {
  constexpr int kCalls = 200;
  for (const bool coalesced : {false, true}) {
    std::promise<void> rank_0_has_the_lock;
    RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
      WarmUp(group);
      Tensors tensors = {torch::zeros({8}, GpuOf(group))};
      const bool waits_for_peer = group.getRank() == 0;
      if (!waits_for_peer) {
        rank_0_has_the_lock.get_future().wait();
        const InterpreterLock lock;
      }
      for (int i = 0; i < kCalls; ++i) {
        group.allreduce(tensors);
      }
      if (coalesced) group.startCoalescing();
      auto work = group.allreduce(tensors);
      if (coalesced) work = group.endCoalescing();
      c10::intrusive_ptr<c10::ivalue::Future> future;
      if (waits_for_peer) {
        const InterpreterLock lock;
        rank_0_has_the_lock.set_value();
        future = work->getFuture();
      } else {
        future = work->getFuture();
      }
      future->waitAndThrow();
    });
  }
}

TEST(GpuStreamsTest, ResultsThatAreCopiedArriveWithoutAWait) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    const at::Tensor tensor = torch::ones({4, 2}, GpuOf(group)).t();
    Tensors tensors = {tensor};
    group.allreduce(tensors);
    const at::Tensor expected = torch::full({2, 4}, 2.0F);
    while (!tensor.cpu().equal(expected)) std::this_thread::yield();
  });
}

TEST(GpuStreamsTest, TensorsAreKeptUntilTheCallHasEnded) {
  LateRank late;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    Tensors tensors = {torch::ones({8}, GpuOf(group))};
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory = tensors[0].storage().getWeakStorageImpl();
    if (group.getRank() == 1) late.may_call.wait();
    group.allreduce(tensors)->wait();
    tensors.clear();
    if (group.getRank() == 0) {
      EXPECT_FALSE(memory.expired());
      late.promise.set_value();
    }
    while (!memory.expired()) std::this_thread::yield();
  });
}

TEST(GpuStreamsTest, BarrierIsAWaitOfTheHostForCallsBefore) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    WarmUp(group);
    StreamGate gate(group.getRank());
    Tensors tensors = {torch::ones({8}, GpuOf(group))};
    const auto work = group.allreduce(tensors);
    const auto barrier = group.barrier();
    EXPECT_FALSE(barrier->isCompleted());
    gate.Open();
    barrier->getFuture()->wait();
    barrier->wait();
    EXPECT_TRUE(work->isCompleted());
  });
}

TEST(GpuStreamsTest, CallsNeitherSynchronizeNorAllocate) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors tensors = {torch::ones({1000}, GpuOf(group))};
    const auto call = [&] {
      const auto work = group.allreduce(tensors);
      work->wait();
      while (!work->isCompleted()) std::this_thread::yield();
    };
    for (int i = 0; i < 4; ++i) call();
    const FakeCudaCounts before = FakeCuda::Counts();
    for (int i = 0; i < 4; ++i) call();
    const FakeCudaCounts counts = FakeCuda::Counts() - before;
    EXPECT_EQ(counts.synchronizations, 0);
    EXPECT_EQ(counts.allocations, 0);
  });
}

}  // namespace
}  // namespace tutti::dist
