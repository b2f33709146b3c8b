// Calls that become part of CUDA graphs, which perform them as often as they are launched. GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kCount = 5000;

// A stream of a rank's GPU, which can be captured.
class Stream {
 public:
  explicit Stream(int device) {
    EXPECT_EQ(FakeCuda::Table().set_device(device), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().create_stream(&stream_), kCudaSuccess);
  }
  ~Stream() { EXPECT_EQ(FakeCuda::Table().destroy_stream(stream_), kCudaSuccess); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CUstream_st* get() const { return stream_; }
  FakeGraph Capture(const std::function<void()>& enqueue) const {
    FakeGraph graph;
    FakeCuda::BeginCapture(stream_);
    enqueue();
    EXPECT_EQ(FakeCuda::EndCapture(stream_, &graph), kCudaSuccess);
    return graph;
  }
  // Launches the graph and waits for its end.
  void Launch(const FakeGraph& graph) const {
    FakeCuda::LaunchGraph(graph, stream_);
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream_), kCudaSuccess);
  }

 private:
  CUstream_st* stream_ = nullptr;
};

void Fill(const FakeMemory& memory, float value) { std::fill_n(memory.floats(), kCount, value); }

Work AllReduce(Communicator& comm, const FakeMemory& memory, CUstream_st* stream, const char* schedule,
               CallOptions options = {}) {
  options.schedule = *FindSchedule(Collective::kAllReduce, schedule);
  options.stream = stream;
  return comm.AllReduce(memory.data(), memory.data(), kCount, DType::kF32, ReduceOp::kSum, options);
}

TEST(CudaGraphsTest, EveryLaunchPerformsTheCalls) {
  for (const char* const schedule : {"native", "ring", "halving_doubling"}) {
    for (int size = 1; size <= 4; ++size) {
      RunWorld(size, OnDevices(), [&](Communicator& comm) {
        const Stream stream(comm.rank());
        const FakeMemory memory(comm.rank(), kCount * 4);
        const FakeMemory other(comm.rank(), kCount * 4);
        Fill(other, 1);
        const FakeGraph graph = stream.Capture([&] {
          // Two calls of one kind, of which the second cannot have the scratch of the first.
          for (int call = 0; call < 2; ++call) {
            Work work = AllReduce(comm, memory, stream.get(), schedule);
            ASSERT_EQ(work.WaitOnStream(stream.get()), absl::OkStatus());
          }
        });
        const auto n = static_cast<float>(comm.size());
        for (int launch = 1; launch <= 3; ++launch) {
          Fill(memory, static_cast<float>(launch));
          stream.Launch(graph);
          EXPECT_EQ(memory.floats()[0], static_cast<float>(launch) * n * n) << schedule << " on " << size;
          EXPECT_EQ(memory.floats()[kCount - 1], static_cast<float>(launch) * n * n);
          // A call outside of the graph, of the same kind.
          ASSERT_EQ(AllReduce(comm, other, stream.get(), schedule).Wait(), absl::OkStatus());
        }
        EXPECT_EQ(other.floats()[7], n * n * n);
      });
    }
  }
}

TEST(CudaGraphsTest, BoundPlansWithCodecs) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    const Strategy bytegrad = *ParseStrategy("bytegrad");
    absl::StatusOr<BoundPlan> plan = comm.Bind(bytegrad, DType::kF32, kCount, 0, {.out = memory.data()});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const FakeGraph graph = stream.Capture(
        [&] { ASSERT_EQ(plan->Start({.stream = stream.get()}).WaitOnStream(stream.get()), absl::OkStatus()); });
    for (const float value : {4.0f, 8.0f}) {
      Fill(memory, value * static_cast<float>(comm.rank()));
      stream.Launch(graph);
      EXPECT_NEAR(memory.floats()[17], value, 0.05f);
    }
    // The plan runs outside of graphs, too.
    Fill(memory, 2);
    ASSERT_EQ(plan->Start({.stream = stream.get()}).Wait(), absl::OkStatus());
    EXPECT_NEAR(memory.floats()[17], 2, 0.05f);
  });
}

TEST(CudaGraphsTest, MessagesBetweenRanks) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    const FakeGraph graph = stream.Capture([&] {
      Work work = comm.rank() == 0 ? comm.Send(memory.data(), kCount, DType::kF32, 1, {.stream = stream.get()})
                                   : comm.Recv(memory.data(), kCount, DType::kF32, 0, {.stream = stream.get()});
      ASSERT_EQ(work.WaitOnStream(stream.get()), absl::OkStatus());
    });
    for (const float value : {1.0f, 2.0f}) {
      Fill(memory, comm.rank() == 0 ? value : 0);
      stream.Launch(graph);
      EXPECT_EQ(memory.floats()[kCount - 1], value);
    }
  });
}

// The work of a captured call tells whether all ranks have captured it.
TEST(CudaGraphsTest, WaitTellsThatAllRanksHaveCaptured) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    Work work;
    const FakeGraph graph = stream.Capture([&] {
      work = AllReduce(comm, memory, stream.get(), "native");
      ASSERT_EQ(work.WaitOnStream(stream.get()), absl::OkStatus());
    });
    EXPECT_EQ(work.Wait(), absl::OkStatus());
  });
}

TEST(CudaGraphsTest, OtherCallsInTheSamePlaceAreNamed) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    FakeCuda::BeginCapture(stream.get());
    const std::int64_t count = comm.rank() == 0 ? 8 : 9;
    Work work =
        comm.AllReduce(memory.data(), memory.data(), count, DType::kF32, ReduceOp::kSum, {.stream = stream.get()});
    const absl::Status status = work.Wait();
    FakeGraph graph;
    // Nothing has waited for the call, if that was enqueued before the ranks were found to differ.
    const CudaError ended = FakeCuda::EndCapture(stream.get(), &graph);
    EXPECT_TRUE(ended == 904 || ended == kCudaSuccess) << ended;
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  });
}

// Where NCCL has yet to connect for the call, it waits for the peers while it records the call.
TEST(CudaGraphsTest, ARankThatDoesNotCaptureIsNamed) {
  for (const bool is_first : {true, false}) {
    RunWorld(2, OnDevices(), [&](Communicator& comm) {
      const Stream stream(comm.rank());
      const FakeMemory memory(comm.rank(), kCount * 4);
      if (!is_first) {
        ASSERT_EQ(AllReduce(comm, memory, stream.get(), "native").Wait(), absl::OkStatus());
      }
      if (comm.rank() == 1) {
        while (comm.status().ok() && !::testing::Test::HasFailure()) absl::SleepFor(absl::Milliseconds(10));
        return;
      }
      Work work;
      const FakeGraph graph = stream.Capture([&] {
        work = AllReduce(comm, memory, stream.get(), "native", {.timeout = absl::Seconds(1)});
        EXPECT_EQ(work.WaitOnStream(stream.get()).code(),
                  is_first ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kOk);
      });
      const absl::Status status = work.Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    });
  }
}

TEST(CudaGraphsTest, ARankThatHasLeftWithoutCapturingIsNamed) {
  RunWorld(2, OnDevices(), [&](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    absl::StatusOr<std::unique_ptr<Communicator>> group = comm.Split(0, comm.rank());
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_EQ(AllReduce(**group, memory, stream.get(), "native").Wait(), absl::OkStatus());
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    if (comm.rank() == 1) group->reset();
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    if (comm.rank() == 1) return;
    FakeCuda::BeginCapture(stream.get());
    const absl::Status status = AllReduce(**group, memory, stream.get(), "native").Wait();
    FakeGraph graph;
    EXPECT_NE(FakeCuda::EndCapture(stream.get(), &graph), kCudaSuccess)
        << "no stream of the capture waits for the call";
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has left"));
  });
}

TEST(CudaGraphsTest, AWaitOutsideOfTheCaptureIsRefused) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const Stream stream(0);
    const Stream free(0);
    const FakeMemory memory(0, kCount * 4);
    Work before = AllReduce(comm, memory, stream.get(), "native");
    Work inside;
    const FakeGraph graph = stream.Capture([&] {
      const absl::Status status = before.WaitOnStream(stream.get());
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      inside = AllReduce(comm, memory, stream.get(), "native");
      ASSERT_EQ(inside.WaitOnStream(stream.get()), absl::OkStatus());
      EXPECT_EQ(inside.WaitOnStream(free.get()).code(), absl::StatusCode::kFailedPrecondition);
    });
    EXPECT_EQ(inside.WaitOnStream(stream.get()).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(before.Wait(), absl::OkStatus());
  });
}

// What a graph uses is never that of another call, until the communicator is destroyed.
TEST(CudaGraphsTest, TheScratchOfAGraphIsItsOwn) {
  const FakeCudaCounts before = FakeCuda::Counts();
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    const FakeGraph graph = stream.Capture(
        [&] { ASSERT_EQ(AllReduce(comm, memory, stream.get(), "ring").WaitOnStream(stream.get()), absl::OkStatus()); });
    for (const bool allocates : {true, false}) {
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const FakeCudaCounts last = FakeCuda::Counts();
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      ASSERT_EQ(AllReduce(comm, memory, stream.get(), "ring").Wait(), absl::OkStatus());
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      EXPECT_EQ((FakeCuda::Counts() - last).allocations > 0, allocates);
    }
  });
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  EXPECT_EQ(counts.frees, counts.allocations);
}

// Ranks may capture one after the other, and more calls than a stream takes at a time.
TEST(CudaGraphsTest, ManyCallsAndNoRankWaitsForAnother) {
  RankBarrier ranks(2);
  RunWorld(2, OnDevices(0, &ranks), [&](Communicator& comm) {
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    ASSERT_EQ(AllReduce(comm, memory, stream.get(), "native").Wait(), absl::OkStatus());
    if (comm.rank() == 1) ranks.Wait();  // until rank 0 has captured
    std::vector<Work> works;
    const FakeGraph graph = stream.Capture([&] {
      for (int call = 0; call < 110; ++call) {
        works.push_back(AllReduce(comm, memory, stream.get(), "native"));
        ASSERT_EQ(works.back().WaitOnStream(stream.get()), absl::OkStatus());
      }
    });
    if (comm.rank() == 0) ranks.Wait();
    for (Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    Fill(memory, 0);
    stream.Launch(graph);
  });
}

TEST(CudaGraphsTest, TwoCapturesAtATime) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const Stream one(0);
    const Stream two(0);
    const FakeMemory memory(0, kCount * 4);
    FakeCuda::BeginCapture(one.get());
    FakeCuda::BeginCapture(two.get());
    for (int call = 0; call < 2; ++call) {
      for (const Stream* stream : {&one, &two}) {
        ASSERT_EQ(AllReduce(comm, memory, stream->get(), "native").WaitOnStream(stream->get()), absl::OkStatus());
      }
    }
    Work in_one = AllReduce(comm, memory, one.get(), "native");
    EXPECT_EQ(in_one.WaitOnStream(two.get()).code(), absl::StatusCode::kFailedPrecondition);
    ASSERT_EQ(in_one.WaitOnStream(one.get()), absl::OkStatus());
    for (const Stream* stream : {&one, &two}) {
      FakeGraph graph;
      EXPECT_EQ(FakeCuda::EndCapture(stream->get(), &graph), kCudaSuccess);
    }
    EXPECT_EQ(comm.status(), absl::OkStatus());
  });
}

// Where a new kind of call takes the place of others, these are freed, which has nothing to do with the capture.
TEST(CudaGraphsTest, MemoryIsFreedDuringACapture) {
  WorldOptions options = OnDevices();
  options.region_bytes = std::int64_t{16} << 20;
  RunWorld(2, options, [](Communicator& comm) {
    constexpr std::int64_t kMax = std::int64_t{1} << 21;
    const Stream stream(comm.rank());
    const FakeMemory memory(comm.rank(), 4 * kMax);
    const auto call = [&](std::int64_t count) {
      return comm.AllReduce(memory.data(), memory.data(), count, DType::kF32, ReduceOp::kSum,
                            {.schedule = *FindSchedule(Collective::kAllReduce, "ring"), .stream = stream.get()});
    };
    for (int kind = 0; kind < 6; ++kind) ASSERT_EQ(call(kMax - kind).Wait(), absl::OkStatus());
    const FakeGraph graph = stream.Capture([&] {
      for (int kind = 0; kind < 3; ++kind) {
        ASSERT_EQ(call(kMax - 100 - kind).WaitOnStream(stream.get()), absl::OkStatus());
      }
    });
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

// A capture may end as soon as the call has returned: the call is in the graph then, also where others are ahead of it.
TEST(CudaGraphsTest, ACallIsInTheGraphWhenItReturns) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const Stream free(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    ASSERT_EQ(FakeCuda::Launch(free.get(), [] { absl::SleepFor(absl::Milliseconds(50)); }), kCudaSuccess);
    std::vector<Work> ahead;
    for (int call = 0; call < 120; ++call) ahead.push_back(AllReduce(comm, memory, free.get(), "native"));
    FakeCuda::BeginCapture(stream.get());
    Work captured = AllReduce(comm, memory, stream.get(), "native");
    FakeGraph graph;
    EXPECT_EQ(FakeCuda::EndCapture(stream.get(), &graph), 904);  // nothing has waited for what is in the graph
    EXPECT_FALSE(graph.empty());
    EXPECT_EQ(captured.Wait(), absl::OkStatus());
    for (Work& work : ahead) EXPECT_EQ(work.Wait(), absl::OkStatus());
  });
}

// Calls outside of graphs go on while a stream is captured, and waits for them do.
TEST(CudaGraphsTest, OtherCallsGoOnDuringACapture) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const Stream stream(comm.rank());
    const Stream free(comm.rank());
    const FakeMemory memory(comm.rank(), kCount * 4);
    const FakeMemory other(comm.rank(), kCount * 4);
    Fill(other, 1);
    const FakeGraph graph = stream.Capture([&] {
      ASSERT_EQ(AllReduce(comm, memory, stream.get(), "ring").WaitOnStream(stream.get()), absl::OkStatus());
      ASSERT_EQ(AllReduce(comm, other, free.get(), "ring").Wait(), absl::OkStatus());
      ASSERT_EQ(AllReduce(comm, memory, stream.get(), "ring").WaitOnStream(stream.get()), absl::OkStatus());
    });
    EXPECT_EQ(other.floats()[3], 2);
    Fill(memory, 1);
    stream.Launch(graph);
    EXPECT_EQ(memory.floats()[3], 4);
    EXPECT_EQ(other.floats()[3], 2);
  });
}

}  // namespace
}  // namespace tutti
