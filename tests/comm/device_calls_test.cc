// Calls on the memory of GPUs, through a communicator that also serves the memory of the host; GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

void Fill(float* values, std::int64_t count, float first) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i % 13);
}

TEST(DeviceCallsTest, CollectivesOfEveryWorld) {
  for (int size = 1; size <= 5; ++size) {
    RunWorld(size, OnDevices(), [&](Communicator& comm) {
      const auto n = static_cast<std::int64_t>(comm.size());
      for (const std::int64_t count : {0, 1, 7, 1000}) {
        const FakeMemory in(comm.rank(), count * n * 4);
        const FakeMemory out(comm.rank(), count * n * 4);
        const auto mine = static_cast<float>(comm.rank() + 1);
        Fill(in.floats(), count * n, mine);
        ASSERT_EQ(comm.AllReduce(in.data(), out.data(), count, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out.floats()[i], static_cast<float>(n * (n + 1) / 2 + n * (i % 13)));
        }
        ASSERT_EQ(comm.AllGather(in.data(), out.data(), count, DType::kF32).Wait(), absl::OkStatus());
        for (std::int64_t i = 0; i < count * n; ++i) {
          ASSERT_EQ(out.floats()[i], static_cast<float>(i / count + 1 + i % count % 13));
        }
        ASSERT_EQ(comm.ReduceScatter(in.data(), out.data(), count, DType::kF32, ReduceOp::kMax).Wait(),
                  absl::OkStatus());
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out.floats()[i], static_cast<float>(n + (comm.rank() * count + i) % 13));
        }
        ASSERT_EQ(comm.AllToAll(in.data(), out.data(), count, DType::kF32).Wait(), absl::OkStatus());
        for (std::int64_t i = 0; i < count * n; ++i) {
          ASSERT_EQ(out.floats()[i], static_cast<float>(i / count + 1 + (comm.rank() * count + i % count) % 13));
        }
        const Rank root = comm.size() - 1;
        ASSERT_EQ(comm.Broadcast(out.data(), out.data(), count, DType::kF32, root).Wait(), absl::OkStatus());
        ASSERT_EQ(
            comm.Reduce(in.data(), comm.rank() == root ? out.data() : nullptr, count, DType::kF32, ReduceOp::kSum, root)
                .Wait(),
            absl::OkStatus());
        if (comm.rank() != root) continue;
        for (std::int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out.floats()[i], static_cast<float>(n * (n + 1) / 2 + n * (i % 13)));
        }
      }
    });
  }
}

// A context takes memory: a rank has one on its own GPU alone.
TEST(DeviceCallsTest, ThreadsThatSetNoDeviceMakeNoContextOnTheFirst) {
  for (const char* transport : {"nccl", "staged"}) {
    WorldOptions options = OnDevices();
    options.first_device = 3;
    options.communicator.gpu_transport = transport;
    FakeCuda::Restart();
    RunWorld(2, options, [](Communicator& comm) {
      {
        const Buffer memory = *comm.Allocate(400, MemoryKind::kDevice);
        auto* const values = reinterpret_cast<float*>(memory.data());
        std::vector<float> host(100, 1.0f);
        std::fill_n(values, 100, 1.0f);
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
          Work work = comm.AllReduce(values, values, 100, DType::kF32, op);
          EXPECT_EQ(work.WaitOnStream(nullptr), absl::OkStatus());
          EXPECT_EQ(work.Wait(), absl::OkStatus());
        }
        EXPECT_EQ(values[99], 2.0f);
        EXPECT_EQ(comm.AllReduce(host.data(), host.data(), 100, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
        const absl::StatusOr<std::unique_ptr<Communicator>> part = comm.Split(0, comm.rank());
        ASSERT_TRUE(part.ok()) << part.status();
        EXPECT_EQ((*part)->AllReduce(values, values, 100, DType::kF32, ReduceOp::kMax).Wait(), absl::OkStatus());
      }
      EXPECT_TRUE(FakeCuda::HasContext(3 + comm.rank()));
    });
    EXPECT_FALSE(FakeCuda::HasContext(0)) << transport;
  }
}

// The plans of types of one byte have the most elements for their bytes.
TEST(DeviceCallsTest, TypesOfOneByte) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 5);
    for (const DType dtype : {DType::kI8, DType::kBool}) {
      std::fill_n(memory.data(), 5, std::byte{1});
      ASSERT_EQ(comm.AllReduce(memory.data(), memory.data(), 5, dtype, ReduceOp::kSum).Wait(), absl::OkStatus());
      EXPECT_EQ(memory.data()[4], dtype == DType::kI8 ? std::byte{2} : std::byte{1});
    }
  });
}

// One communicator serves host and GPU, and the schedules by messages as well as those of NCCL.
TEST(DeviceCallsTest, HostAndDeviceTakeTurns) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 400);
    std::vector<float> host(100);
    for (const char* name : {"native", "ring", "halving_doubling"}) {
      const absl::StatusOr<const Schedule*> schedule = FindSchedule(Collective::kAllReduce, name);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      std::fill_n(memory.floats(), 100, 1.0f);
      std::fill(host.begin(), host.end(), 2.0f);
      Work on_device =
          comm.AllReduce(memory.data(), memory.data(), 100, DType::kF32, ReduceOp::kSum, {.schedule = *schedule});
      Work on_host = comm.AllReduce(host.data(), host.data(), 100, DType::kF32, ReduceOp::kSum);
      EXPECT_EQ(on_host.Wait(), absl::OkStatus());
      EXPECT_EQ(on_device.Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[99], 3.0f) << name;
      EXPECT_EQ(host[99], 6.0f);
    }
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

// Users name NCCL for their GPUs, or a schedule for mapped memory of the host.
TEST(DeviceCallsTest, ANamedScheduleIsForTheMemoryThatItServes) {
  for (const bool native : {true, false}) {
    WorldOptions options = OnDevices();
    options.communicator.schedules = native ? "all_reduce=native" : "all_reduce=direct";
    RunWorld(2, options, [&](Communicator& comm) {
      const CollectiveSpec spec = {.count = 100};
      EXPECT_EQ(comm.PlanFor(spec, {}, false, MemoryKind::kDevice)->name, "all_reduce:native");
      const std::string selected = comm.PlanFor(spec, {.schedule = &kSelectorsChoice})->name;
      EXPECT_EQ(comm.PlanFor(spec)->name, native ? selected : "all_reduce:direct");
      EXPECT_THAT(comm.Explain(spec),
                  HasSubstr(native ? "native, which TUTTI_SCHEDULE or CommunicatorOptions::schedules "
                                     "names, serves memory of GPUs alone"
                                   : "direct, as TUTTI_SCHEDULE"));
      const FakeMemory memory(comm.rank(), 400);
      std::vector<float> host(100, 1.0f);
      std::fill_n(memory.floats(), 100, 1.0f);
      EXPECT_EQ(comm.AllReduce(host.data(), host.data(), 100, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
      EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 100, DType::kF32, ReduceOp::kSum).Wait(),
                absl::OkStatus());
      EXPECT_EQ(host[99], 2.0f);
      EXPECT_EQ(memory.floats()[99], 2.0f);
    });
  }
}

TEST(DeviceCallsTest, ANamedScheduleThatServesNoMemoryIsAnError) {
  WorldOptions options = OnDevices();
  options.communicator.schedules = "all_reduce=direct";
  options.communicator.mapping = CommunicatorOptions::Mapping::kNever;
  RunWorld(2, options, [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 4);
    float value = 1;
    for (void* const data : {static_cast<void*>(memory.data()), static_cast<void*>(&value)}) {
      EXPECT_EQ(comm.AllReduce(data, data, 1, DType::kF32, ReduceOp::kSum).Wait().code(),
                absl::StatusCode::kUnimplemented);
    }
  });
}

TEST(DeviceCallsTest, PlansAreThoseOfTheMemory) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const CollectiveSpec spec = {.collective = Collective::kAllReduce, .count = 1000};
    EXPECT_EQ(comm.PlanFor(spec, {}, /*private_buffers=*/false, MemoryKind::kDevice)->name, "all_reduce:native");
    EXPECT_NE(comm.PlanFor(spec)->name, "all_reduce:native");
  });
}

// Calls that nobody waits for keep their order, although those of the host wait for lanes and those of the GPU do not.
TEST(DeviceCallsTest, CallsOfBothKeepTheirOrder) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    constexpr int kCalls = 60;
    std::vector<std::unique_ptr<FakeMemory>> memories;
    std::vector<std::vector<float>> hosts(kCalls, std::vector<float>(50, 1.0f));
    std::vector<Work> works;
    for (int call = 0; call < kCalls; ++call) {
      memories.push_back(std::make_unique<FakeMemory>(comm.rank(), 200));
      std::fill_n(memories.back()->floats(), 50, static_cast<float>(call));
      float* const host = hosts[static_cast<std::size_t>(call)].data();
      // Two of the host for one of the GPU, or the other way round.
      for (int which = 0; which < 3; ++which) {
        const bool on_device = which == 0 || (which == 1 && call % 2 == 0);
        void* const values = on_device ? static_cast<void*>(memories.back()->data()) : host;
        works.push_back(comm.AllReduce(values, values, 50, DType::kF32, ReduceOp::kMax));
      }
    }
    for (Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_EQ(memories.back()->floats()[49], static_cast<float>(kCalls - 1));
  });
}

// A message of the host overtakes collectives that wait for their place, also where one of them is a GPU's.
TEST(DeviceCallsTest, MessagesOfTheHostWaitForNoCollectives) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    constexpr int kOnHost = 6;  // more than a communicator carries out at a time
    constexpr std::int64_t kCount = 5000;
    std::vector<Buffer> buffers;
    for (int i = 0; i < kOnHost; ++i) buffers.push_back(*comm.Allocate(kCount * 4));
    const FakeMemory memory(comm.rank(), kCount * 4);
    std::vector<Work> works;
    const auto start_collectives = [&] {
      for (const Buffer& buffer : buffers) {
        works.push_back(comm.AllReduce(buffer.data(), buffer.data(), kCount, DType::kF32, ReduceOp::kSum));
      }
      works.push_back(comm.AllReduce(memory.data(), memory.data(), kCount, DType::kF32, ReduceOp::kSum));
    };
    float message = 7;
    if (comm.rank() == 0) {
      start_collectives();
      works.push_back(comm.Send(&message, 1, DType::kF32, 1));
    } else {
      message = 0;
      ASSERT_EQ(comm.Recv(&message, 1, DType::kF32, 0).Wait(absl::Now() + absl::Seconds(20)), absl::OkStatus());
      start_collectives();
    }
    for (Work& work : works) EXPECT_EQ(work.Wait(), absl::OkStatus());
    EXPECT_EQ(message, 7);
  });
}

TEST(DeviceCallsTest, BuffersOfBothInOneCallAreRefused) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    std::vector<float> host(2);
    for (const bool in_on_device : {false, true}) {
      const void* const in = in_on_device ? static_cast<void*>(memory.data()) : host.data();
      void* const out = in_on_device ? static_cast<void*>(host.data()) : memory.data();
      const absl::Status status = comm.AllReduce(in, out, 2, DType::kF32, ReduceOp::kSum).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("another is memory of the host"));
      const CollectiveSpec spec = {.collective = Collective::kAllReduce, .count = 2};
      EXPECT_EQ(comm.Bind(spec, {.in = in, .out = out}).status().code(), absl::StatusCode::kInvalidArgument);
    }
  });
}

// The processor would read what only a GPU can.
TEST(DeviceCallsTest, APlanStaysWithTheKindOfMemoryItWasBoundTo) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 16);
    std::vector<float> host(4, 1.0f);
    const CollectiveSpec spec = {.count = 2};
    absl::StatusOr<BoundPlan> on_host = comm.Bind(spec, {.in = host.data(), .out = host.data() + 2});
    absl::StatusOr<BoundPlan> on_device = comm.Bind(spec, {.in = memory.floats(), .out = memory.floats() + 2});
    ASSERT_TRUE(on_host.ok()) << on_host.status();
    ASSERT_TRUE(on_device.ok()) << on_device.status();
    const PlanBuffers of_gpu = {.in = memory.floats(), .out = memory.floats() + 2};
    const PlanBuffers of_host = {.in = host.data(), .out = host.data() + 2};
    const PlanBuffers of_both = {.in = host.data(), .out = memory.floats()};
    for (const PlanBuffers& buffers : {of_gpu, of_both}) {
      EXPECT_EQ(on_host->Rebind(buffers).code(), absl::StatusCode::kInvalidArgument);
    }
    for (const PlanBuffers& buffers : {of_host, of_both}) {
      EXPECT_EQ(on_device->Rebind(buffers).code(), absl::StatusCode::kInvalidArgument);
    }
    EXPECT_THAT(std::string(on_host->Rebind(of_gpu).message()), HasSubstr("is bound to memory of the host"));
    EXPECT_EQ(on_host->Rebind(of_host), absl::OkStatus());
    EXPECT_EQ(on_host->Start().Wait(), absl::OkStatus());
    EXPECT_EQ(host[3], 2.0f);
  });
}

// A sum by NCCL is no work for the GPU but NCCL's own.
TEST(DeviceCallsTest, ANativeCallEnqueuesNothingElse) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(0, 8);
    const CallOptions native = {.schedule = *FindSchedule(Collective::kAllReduce, "native")};
    FakeCudaCounts before;
    for (const bool counts_now : {false, true}) {
      before = FakeCuda::Counts();
      ASSERT_EQ(comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum, native).Wait(),
                absl::OkStatus());
      if (!counts_now) continue;  // the first call allocates
      const FakeCudaCounts counts = FakeCuda::Counts() - before;
      EXPECT_EQ(counts.copies + counts.fills + counts.launches + counts.allocations, 0);
      EXPECT_EQ(counts.records, 2);
      EXPECT_EQ(counts.event_waits, 1);
    }
  });
}

// As with MPI and NCCL, what a rank names for a buffer without bytes does not matter.
TEST(DeviceCallsTest, PointersToNoBytesLeadNowhere) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 24);
    std::vector<float> host(6);
    const bool is_root = comm.rank() == 1;
    Fill(memory.floats(), 6, static_cast<float>(comm.rank()));
    // The input of a scatter and the output of a reduce belong to the root alone.
    ASSERT_EQ(comm.Reduce(memory.data(), is_root ? memory.data() : static_cast<void*>(host.data()), 2, DType::kF32,
                          ReduceOp::kSum, 1)
                  .Wait(),
              absl::OkStatus());
    if (is_root) {
      EXPECT_EQ(memory.floats()[0], 3);
    }
    const FakeMemory out(comm.rank(), 8);
    const void* const in = is_root ? memory.data() : static_cast<const void*>(host.data());
    ASSERT_EQ(comm.Scatter(in, out.data(), 2, DType::kF32, 1).Wait(), absl::OkStatus());
  });
}

// A CUDA that answers nothing any more does not make host memory of that of a GPU.
TEST(DeviceCallsTest, AnErrorOfCudaIsNotTakenForHostMemory) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(0, 8);
    FakeCuda::FailNext("pointer", 700);
    const absl::Status status = comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("what memory a buffer of the call is"));
  });
}

// More calls than a model has buckets are enqueued while the GPU does something else.
TEST(DeviceCallsTest, TheHostGoesOnForAHundredCalls) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const CudaRuntime& cuda = FakeCuda::Table();
    const FakeMemory memory(0, 8);
    CUstream_st* stream = nullptr;
    ASSERT_EQ(cuda.create_stream(&stream), kCudaSuccess);
    std::latch open(1);
    ASSERT_EQ(FakeCuda::Launch(stream, [&open] { open.wait(); }), kCudaSuccess);
    Work work;
    for (int call = 0; call < 100; ++call) {
      work = comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum, {.stream = stream});
      ASSERT_EQ(work.WaitOnStream(stream), absl::OkStatus());
    }
    EXPECT_FALSE(work.done());
    open.count_down();
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    ASSERT_EQ(cuda.destroy_stream(stream), kCudaSuccess);
  });
}

// Rank 1, whose GPU has no memory for `function` of CUDA, ends the communicator with an error that `says` so: its later
// calls would meet others of its peers.
void ExpectThatARankWithoutMemoryEndsTheCallsOfAll(absl::string_view function, absl::string_view says) {
  std::barrier<> both_have_memory(2);
  RunWorld(2, OnDevices(), [&](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    const absl::StatusOr<const Schedule*> ring = FindSchedule(Collective::kAllReduce, "ring");
    both_have_memory.arrive_and_wait();
    if (comm.rank() == 1) FakeCuda::FailNext(function, kCudaOutOfMemory);
    const absl::Status status =
        comm.rank() == 0
            ? comm.Barrier().Wait()
            : comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum, {.schedule = *ring}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(says)));
    EXPECT_EQ(comm.status().code(), absl::StatusCode::kResourceExhausted);
  });
}

TEST(DeviceCallsTest, ARankWithoutMemoryForScratchEndsTheCallsOfAll) {
  ExpectThatARankWithoutMemoryEndsTheCallsOfAll("allocate", "rank 1: the scratch of all_reduce:ring");
}

TEST(DeviceCallsTest, ARankThatCannotLoadAKernelEndsTheCallsOfAll) {
  ExpectThatARankWithoutMemoryEndsTheCallsOfAll("load_kernel", "rank 1: all_reduce:ring: a kernel");
}

// A GPU that has faulted answers nothing any more: the peers hear of it, and do not wait for the rank's call.
TEST(DeviceCallsTest, ARankWhoseGpuHasFailedEndsTheCallsOfAll) {
  for (const bool is_bound : {false, true}) {
    RunWorld(2, OnDevices(), [&](Communicator& comm) {
      const FakeMemory memory(comm.rank(), 8);
      const FakeMemory other(comm.rank(), 8);
      absl::StatusOr<BoundPlan> plan = comm.Bind({.count = 2, .in_place = true}, {.out = memory.data()});
      ASSERT_TRUE(plan.ok()) << plan.status();
      ASSERT_EQ(plan->Start().Wait(), absl::OkStatus());
      comm.Barrier().Wait().IgnoreError();  // may hear of the error already
      if (comm.rank() == 0) FakeCuda::Break(0, 700);
      const auto begin = absl::Now();
      const absl::Status moved = is_bound ? plan->Rebind({.out = other.data()}) : absl::OkStatus();
      const absl::Status status =
          !moved.ok() ? moved
          : is_bound  ? plan->Start().Wait()
                      : comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
      if (comm.rank() == 1) {
        EXPECT_THAT(std::string(status.message()), HasSubstr("told by rank 0"));
      }
      EXPECT_EQ(comm.status().code(), absl::StatusCode::kInternal);
      EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
      if (comm.rank() == 0) FakeCuda::Break(0, kCudaSuccess);
    });
  }
}

// A stream that was made while another GPU was current.
TEST(DeviceCallsTest, AStreamOfAnotherGpuIsRefused) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const CudaRuntime& cuda = FakeCuda::Table();
    CUstream_st* of_other = nullptr;
    ASSERT_EQ(cuda.set_device(5), kCudaSuccess);
    ASSERT_EQ(cuda.create_stream(&of_other), kCudaSuccess);
    const FakeMemory memory(comm.rank(), 8);
    CUstream_st* mine = nullptr;
    ASSERT_EQ(cuda.create_stream(&mine), kCudaSuccess);
    absl::StatusOr<BoundPlan> plan = comm.Bind({.count = 2, .in_place = true}, {.out = memory.data()});
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto sum = [&](CUstream_st* stream) {
      return comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum, {.stream = stream});
    };
    std::fill_n(memory.floats(), 2, 1.0f);
    if (comm.rank() == 0) {
      for (const bool is_bound : {false, true}) {
        Work refused = is_bound ? plan->Start({.stream = of_other}) : sum(of_other);
        EXPECT_TRUE(refused.done());
        const absl::Status status = refused.Wait();
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_EQ(refused.WaitOnStream(mine), status);
        EXPECT_THAT(std::string(status.message()), HasSubstr("CallOptions::stream of all_reduce"));
        EXPECT_THAT(std::string(status.message()), HasSubstr("must be a stream of device 0, the communicator's"));
      }
    }
    // The calls that were refused count for nobody.
    EXPECT_EQ(sum(mine).Wait(), absl::OkStatus());
    EXPECT_EQ(plan->Start({.stream = mine}).Wait(), absl::OkStatus());
    EXPECT_EQ(memory.floats()[1], 4.0f);
    ASSERT_EQ(cuda.destroy_stream(mine), kCudaSuccess);
    ASSERT_EQ(cuda.destroy_stream(of_other), kCudaSuccess);
  });
}

// A stream that was destroyed may be one of a context that CUDA does not know; the GPU itself works on.
TEST(DeviceCallsTest, AStreamThatDoesNotLiveIsToldFromAGpuThatHasFailed) {
  RunWorld(1, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(0, 8);
    absl::StatusOr<BoundPlan> plan = comm.Bind({.count = 2, .in_place = true}, {.out = memory.data()});
    ASSERT_TRUE(plan.ok()) << plan.status();
    FakeCuda::FailNext("record_event", kCudaContextIsDestroyed);
    EXPECT_EQ(plan->Start().Wait().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.status(), absl::OkStatus());
    FakeCuda::Break(0, kCudaContextIsDestroyed);
    EXPECT_EQ(plan->Start().Wait().code(), absl::StatusCode::kInternal);
    EXPECT_FALSE(comm.status().ok());
    FakeCuda::Break(0, kCudaSuccess);
  });
}

// A kernel of the caller's that never ends, before a call: the call ends with its error after half a minute, and so
// does the communicator, although CUDA would free no memory of that GPU.
TEST(DeviceCallsSlowTest, ACommunicatorEndsAlthoughItsGpuDoesNot) {
  const CudaRuntime& cuda = FakeCuda::Table();
  const FakeMemory memory(0, 8);
  CUstream_st* stream = nullptr;
  ASSERT_EQ(cuda.create_stream(&stream), kCudaSuccess);
  std::atomic<bool> ends = false;
  std::atomic<bool> has_ended = false;
  std::thread watchdog([&] {
    const absl::Time deadline = absl::Now() + absl::Seconds(90);
    while (!has_ended.load() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(10));
    EXPECT_TRUE(has_ended.load());
    ends = true;
    ends.notify_all();
  });
  RunWorld(1, OnDevices(), [&](Communicator& comm) {
    const Buffer buffer = *comm.Allocate(8, MemoryKind::kDevice);
    const Strategy bytegrad = *ParseStrategy("bytegrad");
    absl::StatusOr<BoundPlan> idle = comm.Bind(bytegrad, DType::kF32, 2, 0, {.out = memory.data()});
    ASSERT_TRUE(idle.ok()) << idle.status();
    const auto call = [&](const CallOptions& options) {
      return comm.AllReduce(memory.data(), memory.data(), 2, DType::kF32, ReduceOp::kSum, options).Wait();
    };
    ASSERT_EQ(call({}), absl::OkStatus());
    ASSERT_EQ(FakeCuda::Launch(stream, [&ends] { ends.wait(false); }), kCudaSuccess);
    const absl::Status status = call({.timeout = absl::Milliseconds(1), .stream = stream});
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  });
  has_ended = true;
  watchdog.join();
  EXPECT_EQ(cuda.synchronize_stream(stream), kCudaSuccess);
  EXPECT_EQ(cuda.destroy_stream(stream), kCudaSuccess);
}

// What NCCL does is what is chosen; what NCCL cannot do with the promised result travels by messages.
TEST(DeviceCallsTest, NativeCollectivesAreChosen) {
  const FakeCudaCounts before = FakeCuda::Counts();
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 400);
    std::fill_n(memory.floats(), 100, static_cast<float>(comm.rank()));
    EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 100, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
  });
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  EXPECT_EQ(counts.collectives, 2);
  EXPECT_EQ(counts.launches, 0);
}

// Every algorithm on bound memory of GPUs, which is started again and again without an allocation.
TEST(DeviceCallsTest, BoundStrategies) {
  for (const char* name : {"gradient_allreduce", "bytegrad", "bytegrad:error_feedback=true,codec=sign", "decentralized",
                           "low_precision_decentralized", "gradient_allreduce:codec=bf16"}) {
    RunWorld(3, OnDevices(), [&](Communicator& comm) {
      constexpr std::int64_t kCount = 3000;
      const absl::StatusOr<Strategy> strategy = ParseStrategy(name);
      ASSERT_TRUE(strategy.ok());
      const FakeMemory values(comm.rank(), kCount * 4);
      const FakeMemory state(comm.rank(), kCount * 16);
      Fill(values.floats(), kCount, static_cast<float>(comm.rank()));
      std::fill_n(state.floats(), kCount * 4, 0.0f);
      const FakeMemory input(comm.rank(), kCount * 4);
      Fill(input.floats(), kCount, static_cast<float>(comm.rank()));
      const bool mixes = strategy->algorithm->name == "decentralized";  // from the weights as they were
      absl::StatusOr<BoundPlan> bound =
          comm.Bind(*strategy, DType::kF32, kCount, 0,
                    {.in = mixes ? input.data() : nullptr, .out = values.data(), .state = state.data()});
      ASSERT_TRUE(bound.ok()) << name << ": " << bound.status();
      EXPECT_LE(bound->plan().state_bytes, kCount * 16);
      ASSERT_EQ(bound->Start().Wait(), absl::OkStatus());
      const FakeCudaCounts before = FakeCuda::Counts();
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      for (std::uint64_t run = 1; run < 4; ++run) ASSERT_EQ(bound->Start({.draw = run}).Wait(), absl::OkStatus());
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const FakeCudaCounts counts = FakeCuda::Counts() - before;
      EXPECT_EQ(counts.allocations, 0) << name;
      EXPECT_EQ(counts.synchronizations, 0) << name;
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());  // the counts are those of all ranks
    });
  }
}

TEST(DeviceCallsTest, GroupsHaveGpusToo) {
  RunWorld(4, OnDevices(), [](Communicator& comm) {
    absl::StatusOr<std::unique_ptr<Communicator>> half = comm.Split(comm.rank() % 2, 0);
    ASSERT_TRUE(half.ok()) << half.status();
    const FakeMemory memory(comm.rank(), 4);
    memory.floats()[0] = static_cast<float>(comm.rank());
    EXPECT_EQ((*half)->AllReduce(memory.data(), memory.data(), 1, DType::kF32, ReduceOp::kSum).Wait(),
              absl::OkStatus());
    EXPECT_EQ(memory.floats()[0], comm.rank() % 2 == 0 ? 2.0f : 4.0f);
    if (comm.rank() < 3) {
      absl::StatusOr<std::unique_ptr<Communicator>> three = comm.Group({2, 0, 1}, "three");
      ASSERT_TRUE(three.ok()) << three.status();
      memory.floats()[0] = 1;
      EXPECT_EQ((*three)->AllReduce(memory.data(), memory.data(), 1, DType::kF32, ReduceOp::kSum).Wait(),
                absl::OkStatus());
      EXPECT_EQ(memory.floats()[0], 3.0f);
    }
  });
}

TEST(DeviceCallsTest, TheSameCallOnTheMemoryOfTheHostIsNamed) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    std::vector<float> host(2);
    void* const mine = comm.rank() == 0 ? static_cast<void*>(memory.data()) : host.data();
    const absl::StatusOr<const Schedule*> ring = FindSchedule(Collective::kAllReduce, "ring");
    const absl::Status status = comm.AllReduce(mine, mine, 2, DType::kF32, ReduceOp::kSum, {.schedule = *ring}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("on the memory of a GPU"));
  });
}

TEST(DeviceCallsTest, ARankWithoutAGpuIsNamed) {
  WorldOptions options = OnDevices();
  int refused = 0;
  std::mutex mutex;
  options.communicator.timeout = absl::Seconds(20);
  options.cannot_join = [&](Rank, const absl::Status& status) {
    const std::lock_guard lock(mutex);
    ++refused;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda_device 9 must be in 0…7"));
  };
  options.on_devices = false;
  UseFakeDevices();
  options.communicator.cuda_device = 9;
  RunWorld(2, options, [](Communicator&) { FAIL(); });
  EXPECT_EQ(refused, 2);
}

TEST(DeviceCallsTest, ARankThatLeavesEndsTheCallsOfTheOthers) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    if (comm.rank() == 1) return;
    const FakeMemory memory(0, 4);
    Work work = comm.AllReduce(memory.data(), memory.data(), 1, DType::kF32, ReduceOp::kSum);
    const absl::Status status = work.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  });
}

}  // namespace
}  // namespace tutti
