// Ranks as threads, joined by native transports over the fake NCCL, each with a device and a stream of its own.
#ifndef TUTTI_TESTS_TRANSPORTS_NCCL_NCCL_WORLD_H_
#define TUTTI_TESTS_TRANSPORTS_NCCL_NCCL_WORLD_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_nccl.h"
#include "transports/nccl/transport.h"

namespace tutti::nccl {

// Longer than anything takes that works.
inline absl::Time Later() { return absl::Now() + absl::Seconds(60); }
// The deadline of what never comes.
inline absl::Time Soon() { return absl::Now() + absl::Milliseconds(50); }

// One rank, in its own thread.
struct NcclRank {
  std::unique_ptr<NativeTransport> transport;
  CUstream_st* stream = nullptr;
  Rank rank = 0;
  int size = 0;

  // Waits until what was enqueued lies on the stream.
  absl::Status AwaitReady(NativeTransport& native) const {
    for (;;) {
      const absl::StatusOr<bool> ready = native.Ready();
      if (!ready.ok()) return ready.status();
      if (*ready) return absl::OkStatus();
      std::this_thread::yield();
    }
  }
  // Enqueues a group and waits for its end.
  absl::Status Perform(NativeTransport& native, const std::vector<NativeCall>& calls) const {
    if (absl::Status enqueued = native.Enqueue(calls, stream); !enqueued.ok()) return enqueued;
    if (absl::Status ready = AwaitReady(native); !ready.ok()) return ready;
    const CudaRuntime& cuda = FakeCuda::Table();
    while (cuda.query_stream(stream) == kCudaNotReady) {
      if (absl::Status error = native.Ready().status(); !error.ok()) return error;
      std::this_thread::yield();
    }
    return absl::OkStatus();
  }
  absl::Status Perform(const std::vector<NativeCall>& calls) const { return Perform(*transport, calls); }
};

class NcclWorld {
 public:
  explicit NcclWorld(int size, const Library& nccl = FakeNccl::Table()) : size_(size), nccl_(nccl) {
    id_ = NewUniqueId(nccl_).value();
  }

  const UniqueId& id() const { return id_; }

  // Calls `body` for every rank, in a thread of its own, and finalizes what `body` leaves.
  void Run(const std::function<void(NcclRank&)>& body) const {
    const int misuses = FakeNccl::Misuses();
    const int non_blocking = FakeNccl::NonBlockingGroups();
    std::vector<std::thread> threads;
    for (Rank rank = 0; rank < size_; ++rank) threads.emplace_back([this, rank, &body] { RunRank(rank, body); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(FakeNccl::Misuses(), misuses);
    EXPECT_EQ(FakeNccl::NonBlockingGroups(), non_blocking);
  }

 private:
  void RunRank(Rank rank, const std::function<void(NcclRank&)>& body) const {
    const CudaRuntime& cuda = FakeCuda::Table();
    NcclRank self{.transport = nullptr, .rank = rank, .size = size_};
    absl::StatusOr<std::unique_ptr<NativeTransport>> connected =
        Connect({.nccl = &nccl_, .cuda = &cuda, .device = rank, .rank = rank, .size = size_, .id = id_}, Later());
    ASSERT_TRUE(connected.ok()) << connected.status();
    self.transport = *std::move(connected);
    ASSERT_EQ(cuda.create_stream(&self.stream), kCudaSuccess);
    body(self);
    if (self.transport != nullptr) {
      EXPECT_EQ(self.transport->Finalize(Later()), absl::OkStatus());
    }
    EXPECT_EQ(cuda.synchronize_stream(self.stream), kCudaSuccess);
    EXPECT_EQ(cuda.destroy_stream(self.stream), kCudaSuccess);
  }

  const int size_;
  const Library nccl_;
  UniqueId id_;
};

}  // namespace tutti::nccl

#endif  // TUTTI_TESTS_TRANSPORTS_NCCL_NCCL_WORLD_H_
