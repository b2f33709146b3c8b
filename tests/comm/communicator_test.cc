#include "tutti/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/world.h"
#include "tests/kernels/differences.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr CallOptions kInline = {.caller_drives = true};

class CommunicatorTest : public ::testing::TestWithParam<std::string> {
 protected:
  WorldOptions options() const { return {.transport = GetParam()}; }
};

TEST_P(CommunicatorTest, SumsInTheArenaAndOutsideOfIt) {
  for (const int size : {1, 2, 3, 4}) {
    RunWorld(size, options(), [&](Communicator& comm) {
      for (const std::int64_t count : {0, 1, 7, 1000, 300'001}) {
        absl::StatusOr<Buffer> buffer = comm.Allocate(count * 4);
        ASSERT_TRUE(buffer.ok()) << buffer.status();
        std::vector<float> own(count);
        for (float* data : {buffer->as<float>().data(), own.data()}) {
          for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(comm.rank() + i % 5);
          ASSERT_EQ(comm.AllReduce(data, data, count, DType::kF32, ReduceOp::kSum, kInline).Wait(), absl::OkStatus());
          const auto sum = [&](std::int64_t i) { return static_cast<float>(size * (size - 1) / 2 + size * (i % 5)); };
          ASSERT_EQ(kernels::FirstDifference(absl::MakeConstSpan(data, count), sum), "");
        }
      }
    });
  }
}

TEST_P(CommunicatorTest, OneRankInTheArenaAndOneOutside) {
  RunWorld(2, options(), [&](Communicator& comm) {
    constexpr std::int64_t kCount = 100'000;
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    std::vector<float> own(kCount);
    float* const data = comm.rank() == 0 ? buffer->as<float>().data() : own.data();
    std::fill(data, data + kCount, 1.0f);
    for (int round = 0; round < 10; ++round) {
      ASSERT_EQ(comm.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
    }
    EXPECT_EQ(data[kCount - 1], 1024.0f);
  });
}

TEST_P(CommunicatorTest, WhatNoMemoryHoldsIsRefusedBeforeAnythingIsBuiltForIt) {
  RunWorld(2, options(), [](Communicator& comm) {
    float x = 0;
    const CollectiveSpec impossible = {.count = std::numeric_limits<std::int64_t>::max() / 8};
    EXPECT_THAT(std::string(comm.PlanFor(impossible).status().message()), HasSubstr("count 1152921504606846975"));
    EXPECT_THAT(comm.Explain(impossible), HasSubstr("count 1152921504606846975"));
    // 16 TiB: more than the arena holds, but less than the address space of a process.
    const std::int64_t large = std::int64_t{1} << 44;
    EXPECT_LE(comm.PlanFor({.count = large})->steps.size(), std::size_t{1} << 20);
    const absl::Status status = comm.AllReduce(&x, &x, large, DType::kF32, ReduceOp::kSum, kInline).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_EQ(comm.Barrier(kInline).Wait(), absl::OkStatus());
  });
}

TEST_P(CommunicatorTest, ValuesThatAreNoEnumeratorsAreRefusedWhereverTheyComeIn) {
  RunWorld(2, options(), [](Communicator& comm) {
    float x[2] = {};
    const std::pair<CollectiveSpec, std::string> wrong[] = {
        {{.collective = Collective{55}, .count = 1}, "collective 55"},
        {{.dtype = DType{99}, .count = 1}, "dtype 99"},
        {{.op = ReduceOp{99}, .count = 1}, "op 99"}};
    for (const auto& [spec, text] : wrong) {
      EXPECT_THAT(std::string(comm.Call(spec, x, x + 1).Wait().message()), HasSubstr(text));
      EXPECT_THAT(comm.Explain(spec), HasSubstr(text));
      EXPECT_THAT(std::string(comm.PlanFor(spec).status().message()), HasSubstr(text));
      EXPECT_THAT(std::string(comm.Bind(spec, {.in = x, .out = x + 1}).status().message()), HasSubstr(text));
      const auto plan_of = [&, &its_spec = spec](Rank) -> absl::StatusOr<Plan> {
        Plan plan = *comm.PlanFor({.count = 1});
        plan.spec = its_spec;
        return plan;
      };
      EXPECT_THAT(std::string(comm.Bind(plan_of, {.in = x, .out = x + 1}).status().message()), HasSubstr(text));
    }
    EXPECT_EQ(comm.Barrier(kInline).Wait(), absl::OkStatus());
  });
}

TEST_P(CommunicatorTest, ManyCallsUnderWayKeepTheirOrder) {
  RunWorld(3, options(), [&](Communicator& comm) {
    constexpr int kCalls = 50;
    std::vector<Buffer> buffers;
    std::vector<Work> works;
    for (int call = 0; call < kCalls; ++call) {
      absl::StatusOr<Buffer> buffer = comm.Allocate(4 * 1000 * (call % 7 + 1));
      ASSERT_TRUE(buffer.ok());
      buffers.push_back(*std::move(buffer));
      for (float& x : buffers.back().as<float>()) x = static_cast<float>(call);
    }
    for (Buffer& b : buffers) {
      works.push_back(comm.AllReduce(b.data(), b.data(), b.bytes() / 4, DType::kF32, ReduceOp::kSum));
    }
    for (Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    for (int call = 0; call < kCalls; ++call) EXPECT_EQ(buffers[call].as<float>().back(), static_cast<float>(3 * call));
  });
}

TEST_P(CommunicatorTest, NobodyWaitsAndTheEngineThreadDrives) {
  RunWorld(2, options(), [&](Communicator& comm) {
    float value = 1;
    std::atomic<bool> ended{false};
    Work work = comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum);
    work.OnDone([&](const absl::Status& status) {
      EXPECT_EQ(status, absl::OkStatus());
      ended = true;
      ended.notify_all();
    });
    ended.wait(false);
    EXPECT_EQ(value, 2.0f);
  });
}

TEST_P(CommunicatorTest, PointToPointIsIndependentOfCollectives) {
  RunWorld(2, options(), [&](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    std::int64_t sent[3] = {comm.rank(), 10 + comm.rank(), 20 + comm.rank()};
    std::int64_t received[3] = {};
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) works.push_back(comm.Send(&sent[i], 1, DType::kI64, peer));
    if (comm.rank() == 0) works.push_back(comm.Barrier());
    for (int i = 0; i < 3; ++i) works.push_back(comm.Recv(&received[i], 1, DType::kI64, peer));
    if (comm.rank() == 1) works.push_back(comm.Barrier());
    for (Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(received[i], 10 * i + peer);
  });
}

TEST_P(CommunicatorTest, SplitsIntoGroups) {
  RunWorld(5, options(), [&](Communicator& comm) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = comm.Split(comm.rank() % 2, -comm.rank());
    ASSERT_TRUE(group.ok()) << group.status();
    const int members = comm.rank() % 2 == 0 ? 3 : 2;
    ASSERT_EQ((*group)->size(), members);
    EXPECT_EQ((*group)->rank(), members - 1 - comm.rank() / 2);
    std::int64_t value = comm.rank();
    ASSERT_EQ((*group)->AllReduce(&value, &value, 1, DType::kI64, ReduceOp::kSum).Wait(), absl::OkStatus());
    EXPECT_EQ(value, comm.rank() % 2 == 0 ? 6 : 4);
    // A key of the store is seen by the ranks of one group only.
    if ((*group)->rank() == 0) {
      ASSERT_EQ((*group)->store().Set("leader", std::to_string(comm.rank()), absl::InfiniteFuture()), absl::OkStatus());
    }
    EXPECT_EQ(*(*group)->store().Get("leader", absl::Now() + absl::Minutes(1)), comm.rank() % 2 == 0 ? "4" : "3");
    absl::StatusOr<std::unique_ptr<Communicator>> none = comm.Split(-1, 0);
    ASSERT_TRUE(none.ok());
    EXPECT_EQ(*none, nullptr);
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

// The engine's thread may start later than the first call. Alone in its world, the thread is woken by calls only.
TEST_P(CommunicatorTest, TheFirstCallOfAWorldOfOneEndsWhenNobodyWaits) {
  for (int i = 0; i < Repetitions(30); ++i) {
    RunWorld(1, options(), [&](Communicator& comm) {
      const Work work = comm.Barrier();
      const absl::Time end = absl::Now() + absl::Seconds(20);
      while (!work.done() && absl::Now() < end) std::this_thread::yield();
      EXPECT_TRUE(work.done()) << i;
    });
    if (HasFailure()) return;
  }
}

TEST_P(CommunicatorTest, SplitsThousandsOfTimes) {
  RunWorld(1, options(), [](Communicator& comm) {
    for (int i = 0; i < Repetitions(5000); ++i) ASSERT_TRUE(comm.Split(0, 0).ok()) << i;
  });
}

TEST_P(CommunicatorTest, BoundPlansRunAgainAndAgain) {
  RunWorld(3, options(), [&](Communicator& comm) {
    constexpr std::int64_t kCount = 40'000;
    absl::StatusOr<Buffer> buffer = comm.Allocate(kCount * 4);
    ASSERT_TRUE(buffer.ok());
    absl::StatusOr<BoundPlan> bound =
        comm.Bind(CollectiveSpec{.count = kCount, .in_place = true}, {.out = buffer->data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    for (int round = 0; round < 20; ++round) {
      for (float& x : buffer->as<float>()) x = static_cast<float>(round);
      Work work = bound->Start();
      ASSERT_EQ(work.Wait(), absl::OkStatus());
      ASSERT_EQ(buffer->as<float>()[kCount / 2], static_cast<float>(3 * round));
    }
  });
}

// The schedule for ordinary memory copies what peers read of ordinary buffers, and nothing of buffers in the arena.
TEST(CountersTest, TellWhatPassesThroughScratch) {
  RunWorld(2, [](Communicator& comm) {
    constexpr std::int64_t kCount = std::int64_t{1} << 20;
    std::vector<float> in(kCount, 1);
    std::vector<float> out(kCount, -1);
    absl::StatusOr<Buffer> arena = comm.Allocate(kCount * 4);
    ASSERT_TRUE(arena.ok());
    std::memset(arena->data(), 0, kCount * 4);
    const auto staged_by = [&](const void* from, void* to) {
      const std::int64_t before = comm.counters().staged_bytes;
      EXPECT_EQ(comm.AllReduce(from, to, kCount, DType::kF32, ReduceOp::kSum, kInline).Wait(), absl::OkStatus());
      return comm.counters().staged_bytes - before;
    };
    EXPECT_EQ(staged_by(in.data(), out.data()), kCount * 4) << "the chunk for the peer, and the sum of the own chunk";
    EXPECT_EQ(std::count(out.begin(), out.end(), 2), kCount);
    EXPECT_EQ(staged_by(out.data(), out.data()), kCount * 4);
    EXPECT_EQ(std::count(out.begin(), out.end(), 4), kCount);
    EXPECT_EQ(staged_by(arena->data(), arena->data()), 0);
    // Rank 0 has ordinary memory: both ranks take the schedule for ordinary memory.
    void* const mine = comm.rank() == 0 ? static_cast<void*>(out.data()) : arena->data();
    EXPECT_EQ(staged_by(mine, mine), comm.rank() == 0 ? kCount * 4 : 0);
    EXPECT_EQ(static_cast<const float*>(mine)[kCount - 1], 4);
  });
}

// Where peers map memory and the caller names a schedule that reaches their buffers, ordinary memory is copied into the
// arena, but not an output that is written anyway.
TEST(CountersTest, TellWhatWasStagedWhole) {
  RunWorld(2, [](Communicator& comm) {
    constexpr std::int64_t kCount = 1000;
    constexpr std::int64_t kBytes = kCount * 4;
    std::vector<float> in(kCount, 1);
    std::vector<float> out(kCount, -1);
    absl::StatusOr<Buffer> arena = comm.Allocate(kBytes);
    ASSERT_TRUE(arena.ok());
    std::memset(arena->data(), 0, kBytes);
    const CallOptions direct = {.schedule = *FindSchedule(Collective::kAllReduce, "direct"), .caller_drives = true};
    const auto staged_by = [&](const void* from, void* to) {
      const std::int64_t before = comm.counters().staged_bytes;
      EXPECT_EQ(comm.AllReduce(from, to, kCount, DType::kF32, ReduceOp::kSum, direct).Wait(), absl::OkStatus());
      return comm.counters().staged_bytes - before;
    };
    EXPECT_EQ(staged_by(in.data(), out.data()), 2 * kBytes) << "the input in, the output out";
    EXPECT_THAT(out, testing::Each(2));
    EXPECT_EQ(staged_by(out.data(), out.data()), 2 * kBytes) << "in place: in and out";
    EXPECT_THAT(out, testing::Each(4));
    EXPECT_EQ(staged_by(arena->data(), out.data()), kBytes);
    EXPECT_EQ(staged_by(in.data(), arena->data()), kBytes);
    EXPECT_EQ(staged_by(arena->data(), arena->data()), 0);
  });
}

TEST_P(CommunicatorTest, AbortEndsEveryRank) {
  RunWorld(3, options(), [&](Communicator& comm) {
    float value = 1;
    // Rank 2 never makes the call; the others wait for it until it aborts.
    if (comm.rank() == 2) {
      comm.Abort(absl::AbortedError("rank 2 has had enough"));
      EXPECT_EQ(comm.Barrier().Wait().code(), absl::StatusCode::kAborted);
      return;
    }
    const absl::Status status = comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum).Wait();
    EXPECT_THAT(std::string(status.message()), HasSubstr("had enough"));
    EXPECT_EQ(comm.Barrier().Wait(), status);
    EXPECT_EQ(comm.status(), status);
  });
}

TEST_P(CommunicatorTest, ARankThatStaysAwayIsNamed) {
  RankBarrier ranks(4);
  WorldOptions late = options();
  late.barrier = &ranks;
  RunWorld(4, late, [&](Communicator& comm) {
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    if (comm.rank() != 2) {
      float value = 1;
      const absl::Status status =
          comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, {.timeout = absl::Seconds(2)}).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 2"));
    }
    ranks.Wait();
  });
}

TEST_P(CommunicatorTest, DifferentCallsAreAnErrorNotAHang) {
  RunWorld(2, options(), [&](Communicator& comm) {
    std::vector<float> values(64);
    const std::int64_t count = comm.rank() == 0 ? 64 : 32;
    const absl::Status status = comm.AllReduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum).Wait();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("count"));
  });
}

// Where memory is mapped, peers must know in which buffer the input lies.
TEST_P(CommunicatorTest, OneRankInPlaceAndOneNotIsAnError) {
  RunWorld(2, options(), [&](Communicator& comm) {
    std::vector<float> in(64);
    std::vector<float> out(64);
    const absl::Status status =
        comm.AllReduce(in.data(), comm.rank() == 0 ? in.data() : out.data(), 64, DType::kF32, ReduceOp::kSum).Wait();
    EXPECT_THAT(std::string(status.message()), HasSubstr("in_place"));
  });
}

TEST_P(CommunicatorTest, RefusesBadArguments) {
  RunWorld(2, options(), [&](Communicator& comm) {
    float values[8] = {};
    const auto message = [](Work work) { return std::string(work.Wait().message()); };
    EXPECT_THAT(message(comm.AllReduce(values, values, -1, DType::kF32, ReduceOp::kSum)), HasSubstr("count -1"));
    EXPECT_THAT(message(comm.AllReduce(nullptr, values, 2, DType::kF32, ReduceOp::kSum)), HasSubstr("in is null"));
    EXPECT_THAT(message(comm.AllReduce(values, values + 1, 4, DType::kF32, ReduceOp::kSum)),
                HasSubstr("overlap; in place, in and out must be equal"));
    EXPECT_THAT(message(comm.AllGather(values + 1, values, 2, DType::kF32)),
                HasSubstr("in must be the block of this rank in out, "));
    EXPECT_THAT(message(comm.ReduceScatter(values, values + 1, 2, DType::kF32, ReduceOp::kSum)),
                HasSubstr("out must be the block of this rank in in"));
    EXPECT_THAT(message(comm.AllToAll(values, values, 1, DType::kF32)), HasSubstr("all_to_all has no in-place form"));
    EXPECT_THAT(message(comm.Broadcast(values, values, 2, DType::kF32, 2)), HasSubstr("root 2"));
    EXPECT_THAT(message(comm.Send(values, 1, DType::kF32, 2)), HasSubstr(": to 2 must be in 0…1"));
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());  // a refused call breaks nothing
  });
}

// Neither is a call right because one with the same input, or the same buffers, was made just before.
TEST_P(CommunicatorTest, RefusesBadArgumentsAfterACallThatWasRight) {
  RunWorld(2, options(), [&](Communicator& comm) {
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float* const own = values + 4 * comm.rank();
    float* const wrong = values + 4 * (1 - comm.rank());
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(comm.ReduceScatter(values, own, 4, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
      EXPECT_THAT(std::string(comm.ReduceScatter(values, wrong, 4, DType::kF32, ReduceOp::kSum).Wait().message()),
                  HasSubstr("out must be the block of this rank in in"));
    }
    float out[8];
    CollectiveSpec spec{.collective = Collective::kAllToAll, .count = 4};
    EXPECT_EQ(comm.Call(spec, values, out).Wait(), absl::OkStatus());
    spec.in_place = true;
    EXPECT_THAT(std::string(comm.Call(spec, values, out).Wait().message()), HasSubstr("in_place must be false"));
    EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus());
  });
}

TEST_P(CommunicatorTest, BoundPlansRefuseOverlappingBuffersAndNeedAPlan) {
  RunWorld(2, options(), [&](Communicator& comm) {
    absl::StatusOr<Buffer> buffer = comm.Allocate(4096);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    float* const values = buffer->as<float>().data();
    const CollectiveSpec spec{.collective = Collective::kAllReduce, .count = 100};
    EXPECT_THAT(std::string(comm.Bind(spec, {.in = values, .out = values + 1}).status().message()),
                HasSubstr("in and out overlap"));
    absl::StatusOr<BoundPlan> bound = comm.Bind(spec, {.in = values, .out = values + 100});
    ASSERT_TRUE(bound.ok()) << bound.status();
    EXPECT_EQ(bound->Rebind({.in = values, .out = values + 99}).code(), absl::StatusCode::kInvalidArgument);
    BoundPlan none;
    EXPECT_EQ(none.Start().Wait().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(none.LastRun().Wait(), absl::OkStatus());
    EXPECT_EQ(none.Rebind({}).code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST(CommunicatorOptionsTest, AreRefusedWhereTheyMakeNoSense) {
  const Bootstrap alone{Identity{.rank = 0, .size = 1, .local_rank = 0, .local_size = 1}, MakeMemoryStore()};
  const auto message = [&](const CommunicatorOptions& options) {
    return std::string(Communicator::Create(alone, options).status().message());
  };
  EXPECT_THAT(message({.timeout = absl::Seconds(-4)}), HasSubstr("timeout -4s must be positive"));
  EXPECT_THAT(message({.timeout = absl::ZeroDuration()}), HasSubstr("timeout 0 must be positive"));
  EXPECT_THAT(message({.segment_bytes = -4}), HasSubstr("segment_bytes -4 must be 8 or more"));
}

// The sizes of arenas may differ.
TEST(CommunicatorArenaTest, ARankWithoutRoomForACommunicatorIsNamedByAll) {
  const std::shared_ptr<Store> store = MakeMemoryStore();
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(2);
  const auto create = [&](Rank rank) {
    const Identity identity{.rank = rank, .size = 2, .local_rank = rank, .local_size = 2};
    const std::int64_t bytes = rank == 1 ? 300'000 : 1 << 20;
    return Communicator::Create({identity, store}, MakeInprocTransport(hub, {.region_bytes = bytes}).value(),
                                {.timeout = absl::Seconds(20)})
        .status();
  };
  absl::Status of_1;
  std::thread other([&] { of_1 = create(1); });
  const absl::Status of_0 = create(0);
  other.join();
  for (const absl::Status& status : {of_0, of_1}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("set TUTTI_ARENA_BYTES to a larger size"));
  }
  EXPECT_THAT(std::string(of_0.message()), HasSubstr("rank 1"));
}

TEST(CommunicatorSchedulesTest, AWrongEntryIsNamed) {
  for (const auto& [schedules, text] : std::vector<std::pair<std::string, std::string>>{
           {"all_reduce=ring,all_reduce=direct",
            "'all_reduce=direct' is the second schedule of all_reduce, must be the only one"},
           {"ring", "schedules=ring: 'ring' is not of the form COLLECTIVE=SCHEDULE, such as all_reduce=ring"},
           {"barrier=direct,all_reduce",
            "schedules=barrier=direct,all_reduce: 'all_reduce' is not of the form COLLECTIVE=SCHEDULE"},
           {"ring=all_reduce", "schedules=ring=all_reduce: unknown collective 'ring'; valid: "},
           {"allreduce=ring", "schedules=allreduce=ring: unknown collective 'allreduce'; valid: all_reduce, "},
           {"all_reduce=rings", "schedules=all_reduce=rings: unknown schedule 'rings' of all_reduce; valid: "}}) {
    std::unique_ptr<Transport> transport = MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 1 << 20}).value();
    const auto world =
        Communicator::Create({Identity{}, MakeMemoryStore()}, std::move(transport), {.schedules = schedules});
    EXPECT_THAT(std::string(world.status().message()), HasSubstr(text));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, CommunicatorTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& transport) { return transport.param; });

}  // namespace
}  // namespace tutti
