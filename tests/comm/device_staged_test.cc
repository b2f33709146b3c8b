// Communicators whose ranks share a GPU, or have no NCCL: messages between GPUs go through the host. The GPU is a fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/device_parts.h"
#include "tests/comm/native_messages.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/native_machine.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// All ranks use GPU 0.
WorldOptions OnOneDevice(const std::string& transport = "inproc", int ranks_per_node = 0) {
  WorldOptions options;
  options.transport = transport;
  options.on_devices = true;
  options.on_one_device = true;
  options.ranks_per_node = ranks_per_node;
  return options;
}

TEST(DeviceStagedTest, CollectivesOfEveryWorld) {
  for (const std::string& transport : WorldTransports()) {
    for (const int ranks_per_node : {0, 2}) {
      for (int size = 1; size <= 5; ++size) {
        RunWorld(size, OnOneDevice(transport, ranks_per_node), [](Communicator& comm) {
          const std::int64_t n = comm.size();
          if (n > 1) {
            EXPECT_THAT(comm.gpu_transport(), StartsWith("staged: ranks 0 and 1 have one GPU"));
          }
          for (const std::int64_t count : {0, 1, 7, 1000, 200000}) {
            if (count > 1000 && n > 3) continue;
            const FakeMemory in(0, count * n * 4);
            const FakeMemory out(0, count * n * 4);
            for (std::int64_t i = 0; i < count * n; ++i) {
              in.floats()[i] = static_cast<float>(comm.rank() + 1 + i % 13);
            }
            ASSERT_EQ(comm.AllReduce(in.data(), out.data(), count, DType::kF32, ReduceOp::kSum).Wait(),
                      absl::OkStatus());
            for (std::int64_t i = 0; i < count; ++i) {
              ASSERT_EQ(out.floats()[i], static_cast<float>(n * (n + 1) / 2 + n * (i % 13)));
            }
            ASSERT_EQ(comm.AllGather(in.data(), out.data(), count, DType::kF32).Wait(), absl::OkStatus());
            for (std::int64_t i = 0; i < count * n; ++i) {
              ASSERT_EQ(out.floats()[i], static_cast<float>(i / count + 1 + i % count % 13));
            }
            ASSERT_EQ(comm.AllToAll(in.data(), out.data(), count, DType::kF32).Wait(), absl::OkStatus());
            for (std::int64_t i = 0; i < count * n; ++i) {
              ASSERT_EQ(out.floats()[i], static_cast<float>(i / count + 1 + (comm.rank() * count + i % count) % 13));
            }
          }
        });
      }
    }
  }
}

// The stream of the rank that receives is busy, so the message comes to its end long after its sender has left.
TEST(DeviceStagedTest, ARankThatHasSentMayLeaveBeforeTheOtherStreamIsThere) {
  for (const int ranks_per_node : {0, 1}) {
    WorldOptions options = OnDevices(ranks_per_node);
    options.communicator.gpu_transport = "staged";
    RunWorld(2, options, [](Communicator& comm) {
      const FakeMemory memory(comm.rank(), 4);
      memory.floats()[0] = static_cast<float>(comm.rank());
      if (comm.rank() == 1) {
        EXPECT_EQ(comm.Send(memory.data(), 1, DType::kF32, 0).Wait(), absl::OkStatus());
        return;
      }
      CUstream_st* busy = nullptr;
      ASSERT_EQ(FakeCuda::Table().create_stream(&busy), kCudaSuccess);
      ASSERT_EQ(FakeCuda::Launch(busy, [] { absl::SleepFor(absl::Milliseconds(500)); }), kCudaSuccess);
      EXPECT_EQ(comm.Recv(memory.data(), 1, DType::kF32, 1, {.stream = busy}).Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[0], 1);
      FakeCuda::Table().destroy_stream(busy);
    });
  }
}

// Messages of both kinds of memory travel at the same time over one transport, and never meet.
TEST(DeviceStagedTest, HostAndDeviceAtTheSameTime) {
  for (const std::string& transport : WorldTransports()) {
    WorldOptions options = OnOneDevice(transport);
    options.communicator.mapping = CommunicatorOptions::Mapping::kNever;
    RunWorld(3, options, [](Communicator& comm) {
      constexpr int kCalls = 30;
      std::vector<std::unique_ptr<FakeMemory>> memories;
      std::vector<std::vector<float>> hosts(kCalls, std::vector<float>(5000, 1.0f));
      std::vector<Work> works;
      for (int call = 0; call < kCalls; ++call) {
        memories.push_back(std::make_unique<FakeMemory>(0, 20000));
        std::fill_n(memories.back()->floats(), 5000, static_cast<float>(call));
        float* const host = hosts[static_cast<std::size_t>(call)].data();
        works.push_back(
            comm.AllReduce(memories.back()->data(), memories.back()->data(), 5000, DType::kF32, ReduceOp::kSum));
        works.push_back(comm.AllReduce(host, host, 5000, DType::kF32, ReduceOp::kSum));
      }
      for (Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
      for (int call = 0; call < kCalls; ++call) {
        EXPECT_EQ(memories[static_cast<std::size_t>(call)]->floats()[4999], static_cast<float>(3 * call));
        EXPECT_EQ(hosts[static_cast<std::size_t>(call)][4999], 3.0f);
      }
    });
  }
}

TEST(DeviceStagedTest, GroupsHaveMessagesOfTheirOwn) {
  RunWorld(4, OnOneDevice(), [](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      absl::StatusOr<std::unique_ptr<Communicator>> half = comm.Split(comm.rank() % 2, 0);
      ASSERT_TRUE(half.ok()) << half.status();
      const FakeMemory memory(0, 8);
      memory.floats()[0] = static_cast<float>(comm.rank());
      memory.floats()[1] = 1;
      Work of_half = (*half)->AllReduce(memory.data(), memory.data(), 1, DType::kF32, ReduceOp::kSum);
      Work of_all = comm.AllReduce(memory.data() + 4, memory.data() + 4, 1, DType::kF32, ReduceOp::kSum);
      EXPECT_EQ(of_all.Wait(), absl::OkStatus());
      EXPECT_EQ(of_half.Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[0], comm.rank() % 2 == 0 ? 2.0f : 4.0f);
      EXPECT_EQ(memory.floats()[1], 4.0f);
      EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    }
  });
}

// The values are integers, so that no order of summation matters.
TEST(DeviceStagedTest, BoundStrategiesGiveWhatTheHostGives) {
  for (const char* name : {"gradient_allreduce", "bytegrad", "bytegrad:error_feedback=true,codec=sign",
                           "low_precision_decentralized", "gradient_allreduce:hierarchical=true"}) {
    RunWorld(4, OnOneDevice("inproc", 2), [&](Communicator& comm) {
      constexpr std::int64_t kCount = 3000;
      const absl::StatusOr<Strategy> strategy = ParseStrategy(name);
      ASSERT_TRUE(strategy.ok());
      const auto result_in = [&](float* values, float* state) {
        for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(4 * (i % 13) - comm.rank());
        std::fill_n(state, kCount * 4, 0.0f);
        absl::StatusOr<BoundPlan> bound = comm.Bind(*strategy, DType::kF32, kCount, 0, {.out = values, .state = state});
        EXPECT_TRUE(bound.ok()) << name << ": " << bound.status();
        for (std::uint64_t run = 0; run < 3; ++run) EXPECT_EQ(bound->Start({.draw = run}).Wait(), absl::OkStatus());
        return std::vector<float>(values, values + kCount);
      };
      const FakeMemory values(0, kCount * 4);
      const FakeMemory state(0, kCount * 16);
      std::vector<float> host_values(kCount);
      std::vector<float> host_state(kCount * 4);
      EXPECT_EQ(result_in(values.floats(), state.floats()), result_in(host_values.data(), host_state.data())) << name;
    });
  }
}

TEST(DeviceStagedTest, SendsAndRecvsOfManyAtOnce) {
  for (const std::string& transport : WorldTransports()) {
    RunWorld(3, OnOneDevice(transport), [](Communicator& comm) {
      constexpr std::int64_t kCount = 700000;
      const Rank next = (comm.rank() + 1) % 3;
      const Rank before = (comm.rank() + 2) % 3;
      const FakeMemory mine(0, kCount * 4);
      const FakeMemory a(0, kCount * 4);
      const FakeMemory b(0, kCount * 4);
      std::fill_n(mine.floats(), kCount, static_cast<float>(comm.rank() + 1));
      const std::vector<NativeCall> calls = {SendOf(mine.data(), kCount, next), RecvOf(a.data(), kCount, next),
                                             SendOf(mine.data(), kCount, before), RecvOf(b.data(), kCount, before)};
      for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(comm.SendRecv(calls, {}).Wait(), absl::OkStatus());
        EXPECT_EQ(a.floats()[kCount - 1], static_cast<float>(next + 1));
        EXPECT_EQ(b.floats()[kCount - 1], static_cast<float>(before + 1));
      }
      // One by one, in an order in which no rank waits for a call that stands behind another.
      if (comm.rank() == 0) {
        ASSERT_EQ(comm.Send(mine.data(), kCount, DType::kF32, 1).Wait(), absl::OkStatus());
      } else if (comm.rank() == 1) {
        ASSERT_EQ(comm.Recv(a.data(), kCount, DType::kF32, 0).Wait(), absl::OkStatus());
        EXPECT_EQ(a.floats()[kCount - 1], 1.0f);
      }
    });
  }
}

TEST(DeviceStagedTest, DifferentLengthsAreNamed) {
  RunWorld(2, OnOneDevice(), [](Communicator& comm) {
    const FakeMemory memory(0, 80);
    Work work =
        comm.rank() == 0 ? comm.Send(memory.data(), 10, DType::kF32, 1) : comm.Recv(memory.data(), 20, DType::kF32, 0);
    const absl::Status status = work.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 sends 40 bytes to rank 1, which receives 80"));
  });
}

// Ranks of different nodes do not see what the other calls. No bytes of the longer message come to the shorter one.
TEST(DeviceStagedTest, DifferentLengthsBetweenNodesEndAtTheDeadline) {
  std::latch has_ended(1);
  RunWorld(2, OnOneDevice("inproc", 1), [&](Communicator& comm) {
    const FakeMemory memory(0, 80);
    std::fill_n(memory.floats(), 20, comm.rank() == 0 ? 1.0f : -1.0f);
    if (comm.rank() == 0) {
      Work work = comm.Send(memory.data(), 10, DType::kF32, 1);  // so short that it need not wait for its Recv
      has_ended.wait();
      work.Wait().IgnoreError();
      return;
    }
    const absl::Status status =
        comm.Recv(memory.data(), 20, DType::kF32, 0, {.timeout = absl::Milliseconds(300)}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_EQ(memory.floats()[0], -1.0f);
    has_ended.count_down();
  });
}

TEST(DeviceStagedTest, ARankThatLeavesEndsTheCallsOfTheOthers) {
  for (const std::string& transport : WorldTransports()) {
    RunWorld(3, OnOneDevice(transport), [](Communicator& comm) {
      if (comm.rank() == 1) return;
      const FakeMemory memory(0, 4 << 20);
      const absl::Status status =
          comm.AllReduce(memory.data(), memory.data(), 1 << 20, DType::kF32, ReduceOp::kSum).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    });
  }
}

// The group fails alone: the world, whose messages have another number, goes on.
TEST(DeviceStagedTest, AGroupFailsAlone) {
  RunWorld(2, OnOneDevice(), [](Communicator& comm) {
    absl::StatusOr<std::unique_ptr<Communicator>> twin = comm.Split(0, 0);
    ASSERT_TRUE(twin.ok()) << twin.status();
    const FakeMemory memory(0, 16 << 20);
    if (comm.rank() == 0) {
      Work work = (*twin)->AllReduce(memory.data(), memory.data(), 4 << 20, DType::kF32, ReduceOp::kSum);
      (*twin)->Abort(absl::AbortedError("enough"));
      EXPECT_EQ(work.Wait().code(), absl::StatusCode::kAborted);
    }
    memory.floats()[0] = 1;
    EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 1, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
    EXPECT_EQ(memory.floats()[0], 2.0f);
  });
}

// A plan whose native steps only NCCL can perform is refused, and nothing of the communicator ends.
TEST(DeviceStagedTest, NativeStepsAreRefused) {
  RunWorld(2, OnOneDevice(), [](Communicator& comm) {
    const FakeMemory memory(0, 32);
    const CollectiveSpec spec = {.count = 8, .in_place = true};
    const Schedule& native = **FindSchedule(Collective::kAllReduce, "native");
    const auto plan_of = [&](Rank rank) { return BuildPlan(native, spec, rank, 2, WithNative({})); };
    const absl::Status refused = comm.Bind(plan_of, {.out = memory.data()}).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnimplemented) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("needs NCCL"));
    EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 8, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
  });
}

// The parts of a process without NCCL, which the next UseFakeDevices takes back.
TEST(DeviceStagedTest, WithoutNccl) {
  UseFakeDevices();
  static DeviceParts parts = *PartsOfThisProcess();
  parts.native = nullptr;
  parts.without_nccl = absl::NotFoundError("no NCCL: no libnccl.so.2");
  SetPartsOfThisProcess(&parts);
  WorldOptions options;
  options.communicator.timeout = absl::Seconds(20);
  options.communicator.cuda_device = 0;
  RunWorld(2, options, [](Communicator& comm) {
    EXPECT_EQ(comm.gpu_transport(), "staged: rank 0 has no NCCL: no NCCL: no libnccl.so.2");
    const FakeMemory memory(0, 32);
    EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 8, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
  });
  options.communicator.gpu_transport = "nccl";
  int refused = 0;
  std::mutex mutex;
  options.cannot_join = [&](Rank, const absl::Status& status) {
    const std::lock_guard lock(mutex);
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  };
  RunWorld(2, options, [](Communicator&) { FAIL(); });
  options.communicator.gpu_transport = "mpi";
  options.cannot_join = [&](Rank, const absl::Status& status) {
    const std::lock_guard lock(mutex);
    ++refused;
    EXPECT_THAT(std::string(status.message()), HasSubstr("gpu_transport=mpi: expected auto, nccl or staged"));
  };
  RunWorld(2, options, [](Communicator&) { FAIL(); });
  EXPECT_EQ(refused, 4);
  UseFakeDevices();
}

TEST(DeviceStagedTest, StagedCanBeAskedFor) {
  WorldOptions options = OnOneDevice();
  options.on_one_device = false;
  RunWorld(2, options,
           [](Communicator& comm) { EXPECT_EQ(comm.gpu_transport(), "nccl: all ranks have NCCL, and a GPU each"); });
  options.communicator.gpu_transport = "staged";
  RunWorld(2, options, [](Communicator& comm) {
    EXPECT_EQ(comm.gpu_transport(), "staged: as TUTTI_GPU_TRANSPORT or CommunicatorOptions::gpu_transport says");
    const FakeMemory memory(comm.rank(), 32);
    EXPECT_EQ(comm.AllReduce(memory.data(), memory.data(), 8, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
  });
}

// Joins two ranks, with a GPU and NCCL each, in a process with this TUTTI_GPU_TRANSPORT.
[[noreturn]] void JoinWith(const char* gpu_transport) {
  ::setenv("TUTTI_GPU_TRANSPORT", gpu_transport, /*overwrite=*/1);
  std::string choice;
  RunWorld(2, OnDevices(), [&](Communicator& comm) {
    if (comm.rank() == 0) choice = comm.gpu_transport();
  });
  std::fprintf(stderr, "%s\n", choice.c_str());
  std::exit(3);
}

TEST(DeviceStagedDeathTest, AVariableAsksForItToo) {
  const testing::ExitedWithCode ends(3);
  EXPECT_EXIT(JoinWith("staged"), ends, "staged: as TUTTI_GPU_TRANSPORT");
  EXPECT_EXIT(JoinWith("auto"), ends, "nccl: all ranks have NCCL");
}

}  // namespace
}  // namespace tutti
