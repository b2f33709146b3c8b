// Plans on streams: the results are those of the host executor, bit for bit; nothing waits for the device; failures end
// the calls of all ranks.
#include "engine/stream_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "plan/meetings.h"
#include "tests/engine/capturing_stream.h"
#include "tests/engine/stream_results.h"
#include "tests/engine/stream_world.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/native_machine.h"
#include "tutti/algorithm.h"
#include "tutti/cost_model.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using On = StreamWorld::On;

TEST(StreamExecutorTest, EveryScheduleGivesWhatTheHostGives) {
  EXPECT_GT(CompareSchedulesWithTheHost(On::kStreams, 1), 40);
}

TEST(StreamExecutorTest, EveryAlgorithmGivesWhatTheHostGives) {
  EXPECT_GT(
      CompareAlgorithmsWithTheHost(On::kStreams, {"", ":error_feedback=true", ":rounding=stochastic"}, {1, 2, 3, 8}),
      20);
}

// Native collectives within nodes and between their leaders, and messages in place of them on the host.
TEST(StreamExecutorTest, EveryHierarchyGivesWhatTheHostGives) {
  // On links where only bytes take time bytegrad takes two exchanges on the host, too.
  CostModel model = DefaultCostModel();
  model.between_nodes = {.latency_s = 0, .bytes_per_s = model.memory_bytes_per_s / 50};
  const auto only_bytes = std::make_shared<const CostModel>(model);
  std::set<std::string> with_groups;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(absl::StrCat(algorithm->name, ":hierarchical=true"));
    if (!strategy.ok()) continue;
    for (const std::vector<int>& nodes : {std::vector<int>{0, 0},
                                          {0, 0, 1},
                                          {0, 0, 1, 1},
                                          {0, 1, 0, 1, 0},
                                          {0, 0, 1, 1, 2, 2},
                                          {0, 0, 0, 0, 1, 1, 1},
                                          {0, 0, 0, 0, 1, 1, 1, 1},
                                          {0, 0, 1, 1, 2, 2, 3, 3}}) {
      const auto plans_of = [&](const PlanOptions& options) {
        std::vector<Plan> plans;
        for (Rank rank = 0; rank < static_cast<Rank>(nodes.size()); ++rank) {
          absl::StatusOr<Plan> plan =
              BuildPlan(*strategy, DType::kF32, 3001, rank, static_cast<int>(nodes.size()), options, 0);
          if (plan.ok()) plans.push_back(*std::move(plan));
        }
        return plans;
      };
      const PlanOptions options = {.segment_bytes = kWhole.segment_bytes, .nodes = nodes, .cost_model = only_bytes};
      const std::vector<Plan> plans = plans_of(WithNative(options));
      if (plans.size() < nodes.size()) continue;
      if (!GroupsOf(plans).empty()) with_groups.insert(strategy->ToString());
      EXPECT_EQ(ResultsOf(plans, On::kStreams, 3), ResultsOf(plans_of(options), On::kHost, 3))
          << strategy->ToString() << " on nodes " << absl::StrJoin(nodes, " ");
    }
  }
  EXPECT_GE(with_groups.size(), 4u) << absl::StrJoin(with_groups, ", ");
}

TEST(StreamExecutorTest, AGroupWithoutATransportIsNamed) {
  StreamWorld world(3, On::kStreams, absl::Seconds(20));
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    plans.push_back(BuildPlan(*ParseStrategy("gradient_allreduce:hierarchical=true"), DType::kF32, 8, rank, 3,
                              WithNative({.nodes = {0, 0, 1}}), 0)
                        .value());
  }
  std::vector<StreamOrder> orders = StreamOrdersOf(plans).value();
  world.OnEveryRank([&](StreamRank& rank) {
    const auto place = static_cast<std::size_t>(rank.rank);
    const FakeMemory memory(rank.rank, 32);
    const absl::Status status =
        rank.Start(CompileForStream(plans[place], orders[place]), {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no native transport"));
  });
}

// After the first run a call allocates nothing on the device, and at no time does the host wait for the device.
TEST(StreamExecutorTest, NothingWaitsForTheDevice) {
  StreamWorld world(2);
  const std::vector<Plan> plans = AllReducePlans(2, 1000);
  const auto programs = world.Programs(plans);
  const FakeMemory a(0, 4000);
  const FakeMemory b(1, 4000);
  Call* calls[2];
  world.OnEveryRank([&](StreamRank& rank) {
    Call*& call = calls[rank.rank];
    call = Call::Create(programs[static_cast<std::size_t>(rank.rank)], *rank.channel);
    ASSERT_EQ(call->SetBuffers(nullptr, (rank.rank == 0 ? a : b).data(), nullptr), absl::OkStatus());
  });
  const FakeCudaCounts before = FakeCuda::Counts();
  constexpr int kRuns = 5;
  world.OnEveryRank([&](StreamRank& rank) {
    for (int run = 0; run < kRuns; ++run) {
      Call* const call = calls[rank.rank];
      ASSERT_EQ(call->SetBuffersAgain(), absl::OkStatus());
      call->AddReference();
      EXPECT_EQ(Work(call, call->Submit({})).Wait(), absl::OkStatus());
    }
  });
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  EXPECT_EQ(counts.synchronizations, 0);
  EXPECT_EQ(counts.allocations, 0);
  EXPECT_EQ(counts.events, 0);
  EXPECT_EQ(counts.collectives, 2 * kRuns * 2) << "a ring of two ranks exchanges twice";
  EXPECT_EQ(counts.launches, 2 * kRuns * 1) << "and adds once";
  EXPECT_EQ(counts.records, 2 * kRuns * 2);
  EXPECT_EQ(counts.event_waits, 2 * kRuns);
  for (Call* const call : calls) call->Release();
}

// Freeing memory waits for all work of the device, which may wait for what only the driver can end. The scratch of a
// call that nobody holds when its run ends is freed by whoever makes the next call.
TEST(StreamExecutorTest, TheDriverFreesNoMemoryOfTheDevice) {
  StreamWorld world(1);
  Plan with_scratch = AllReducePlans(1, 8).front();
  with_scratch.scratch_bytes = 256;
  const auto program = world.Programs({with_scratch}).front();
  const StreamRank& rank = world.At(0);
  const FakeMemory memory(0, 32);
  Call* const next = Call::Create(world.Programs(AllReducePlans(1, 8)).front(), *rank.channel);
  ASSERT_EQ(next->SetBuffers(nullptr, memory.data(), nullptr), absl::OkStatus());
  const FakeCudaCounts before = FakeCuda::Counts();
  const CudaRuntime& cuda = FakeCuda::Table();
  CUstream_st* busy = nullptr;
  ASSERT_EQ(cuda.create_stream(&busy), kCudaSuccess);
  std::latch has_gone(1);
  ASSERT_EQ(FakeCuda::Launch(busy, [&] { has_gone.wait(); }), kCudaSuccess);
  rank.Start(program, {.out = memory.data()}, {.stream = busy});  // the Work is gone before the run can end
  has_gone.count_down();
  next->AddReference();
  EXPECT_EQ(Work(next, next->Submit({})).Wait(), absl::OkStatus()) << "ends after the other call";
  EXPECT_EQ((FakeCuda::Counts() - before).frees, 0);
  EXPECT_EQ(rank.Start(program, {.out = memory.data()}).Wait(), absl::OkStatus());
  EXPECT_GE((FakeCuda::Counts() - before).frees, 1);
  next->Release();
  cuda.destroy_stream(busy);
}

// However many ranks there are, a bucket of bytegrad needs three kernels: to encode all chunks, to add up and encode
// this rank's own, and to decode all.
TEST(StreamExecutorTest, ABucketOfBytegradIsThreeKernels) {
  for (const char* strategy : {"bytegrad", "bytegrad:average=false", "bytegrad:codec=uint4_block"}) {
    for (const int size : {2, 5, 8}) {
      std::vector<Plan> plans;
      for (Rank rank = 0; rank < size; ++rank) {
        plans.push_back(BuildPlan(*ParseStrategy(strategy), DType::kF32, 9000, rank, size, kWhole, 0).value());
      }
      const FakeCudaCounts before = FakeCuda::Counts();
      const Results on_streams = ResultsOf(plans, On::kStreams, 1);
      EXPECT_EQ((FakeCuda::Counts() - before).launches, 3 * size) << strategy << ", " << size << " ranks";
      EXPECT_EQ(on_streams, ResultsOf(plans, On::kHost, 1));
    }
  }
}

// A message that lies in part where the versions lie that it is made of: one kernel for all would write to versions
// that its other blocks still read.
TEST(StreamExecutorTest, AMessageMayLieOverItsVersions) {
  constexpr std::int64_t kCount = 20'000;
  const CodecChoice codec = CodecOf(*ParseStrategy("bytegrad"));
  const std::int64_t bytes = codec.codec->encoded_bytes(kCount, codec.options);
  for (const std::int64_t at : {std::int64_t{0}, bytes / 8 * 4, bytes, 2 * bytes}) {
    PlanBuilder b("aliased", {.count = kCount, .in_place = true}, 0, 1, kWhole);
    const Ref messages = b.Scratch(DType::kU8, 3 * bytes);
    const Ref sum = b.Scratch(DType::kF32, kCount);
    for (const int part : {0, 1}) {
      const Ref values = b.Scratch(DType::kF32, kCount);
      b.Scale(values, b.out(), 2 + part);
      b.Encode(messages.Elements(part * bytes, bytes), values, codec);
    }
    b.Decode(sum, messages.Elements(0, bytes), codec);
    b.Decode(sum, messages.Elements(bytes, bytes), codec, /*accumulate=*/true);
    b.Encode(messages.Elements(at, bytes), sum, codec);
    b.Decode(b.out(), messages.Elements(at, bytes), codec);
    const std::vector<Plan> plans = {*std::move(b).Build()};
    const FakeCudaCounts before = FakeCuda::Counts();
    const Results on_streams = ResultsOf(plans, On::kStreams, 1);
    const bool alone = at == 0 || at >= bytes;
    EXPECT_EQ((FakeCuda::Counts() - before).launches, alone ? 4 : 6) << at << " of " << bytes;
    EXPECT_EQ(on_streams, ResultsOf(plans, On::kHost, 1)) << at << " of " << bytes;
  }
}

// The input is computed on a stream of the caller's, and used there afterwards, without a wait of the host.
TEST(StreamExecutorTest, StreamsOfTheCallerWaitInsteadOfTheHost) {
  StreamWorld world(2);
  static constexpr std::int64_t kCount = 256;
  const auto programs = world.Programs(AllReducePlans(2, kCount));
  world.OnEveryRank([&](StreamRank& rank) {
    const CudaRuntime& cuda = FakeCuda::Table();
    const FakeMemory values(rank.rank, kCount * 4);
    const FakeMemory copy(rank.rank, kCount * 4);
    CUstream_st* mine = nullptr;
    ASSERT_EQ(cuda.set_device(rank.rank), kCudaSuccess);
    ASSERT_EQ(cuda.create_stream(&mine), kCudaSuccess);
    for (int step = 1; step <= 20; ++step) {
      const float value = static_cast<float>(step * (rank.rank + 1));
      ASSERT_EQ(FakeCuda::Launch(mine, [&values, value] { std::fill_n(values.floats(), kCount, value); }),
                kCudaSuccess);
      Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = values.data()}, {.stream = mine});
      ASSERT_EQ(work.WaitOnStream(mine), absl::OkStatus());
      ASSERT_EQ(cuda.copy_async(copy.data(), values.data(), kCount * 4, mine), kCudaSuccess);
      ASSERT_EQ(cuda.synchronize_stream(mine), kCudaSuccess);
      EXPECT_EQ(copy.floats()[kCount - 1], static_cast<float>(3 * step));
      EXPECT_EQ(work.Wait(), absl::OkStatus());
    }
    cuda.destroy_stream(mine);
  });
}

TEST(StreamExecutorTest, MoreCallsThanLanesAreEnqueuedAtOnce) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  world.OnEveryRank([&](StreamRank& rank) {
    std::vector<std::unique_ptr<FakeMemory>> memories;
    std::vector<Work> works;
    for (int i = 0; i < 4 * kLanes; ++i) {
      memories.push_back(std::make_unique<FakeMemory>(rank.rank, 32));
      std::fill_n(memories.back()->floats(), 8, static_cast<float>(i));
      works.push_back(rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memories.back()->data()}));
    }
    for (int i = 0; i < 4 * kLanes; ++i) {
      EXPECT_EQ(works[static_cast<std::size_t>(i)].Wait(), absl::OkStatus());
      EXPECT_EQ(memories[static_cast<std::size_t>(i)]->floats()[7], static_cast<float>(2 * i));
    }
  });
}

// To set a device makes a context there: a rank whose thread went back to the first device after each call would take
// memory of it.
TEST(StreamExecutorTest, TheThreadOfTheEngineStaysOnItsDevice) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  std::latch go(1);
  FakeCudaCounts before;
  world.OnEveryRank([&](StreamRank& rank) {
    const CudaRuntime& cuda = FakeCuda::Table();
    ASSERT_EQ(cuda.set_device(rank.rank), kCudaSuccess);
    const FakeMemory first(rank.rank, 32), second(rank.rank, 32);
    const auto& program = programs[static_cast<std::size_t>(rank.rank)];
    const Work seen_by_the_thread = rank.Start(program, {.out = first.data()});
    while (!seen_by_the_thread.done()) absl::SleepFor(absl::Milliseconds(1));  // nobody else drives
    if (rank.rank == 0) {
      go.count_down();
    } else {
      go.wait();
      before = FakeCuda::Counts();
    }
    for (int call = 0; call < 50; ++call) {  // the second call comes while the engine's thread polls for the first
      Work one = rank.Start(program, {.out = first.data()});
      Work two = rank.Start(program, {.out = second.data()});
      absl::SleepFor(absl::Milliseconds(1));
      ASSERT_EQ(one.Wait(), absl::OkStatus());
      ASSERT_EQ(two.Wait(), absl::OkStatus());
    }
  });
  EXPECT_EQ((FakeCuda::Counts() - before).device_changes, 0);
}

// A thread of the caller's keeps its current device.
TEST(StreamExecutorTest, TheCurrentDeviceStays) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  world.OnEveryRank([&](StreamRank& rank) {
    const CudaRuntime& cuda = FakeCuda::Table();
    const FakeMemory memory(rank.rank, 32);
    ASSERT_EQ(cuda.set_device(5), kCudaSuccess);
    Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()});
    EXPECT_EQ(work.WaitOnStream(nullptr), absl::OkStatus());
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    int current = -1;
    ASSERT_EQ(cuda.current_device(&current), kCudaSuccess);
    EXPECT_EQ(current, 5);
  });
}

TEST(StreamExecutorTest, CommunicatorsOfNcclEndWithTheirChannels) {
  const int living = FakeNccl::LivingCommunicators();
  {
    StreamWorld world(3);
    const auto programs = world.Programs(AllReducePlans(3, 8));
    world.OnEveryRank([&](StreamRank& rank) {
      const FakeMemory memory(rank.rank, 32);
      EXPECT_EQ(rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait(),
                absl::OkStatus());
    });
    EXPECT_EQ(FakeNccl::LivingCommunicators(), living + 3);
  }
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

TEST(StreamExecutorTest, MemoryThatIsNotTheDevicesIsRefused) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  std::vector<float> host(8);
  const FakeMemory other(1, 32);
  const absl::Status of_host = world.At(0).Start(programs[0], {.out = host.data()}).Wait();
  EXPECT_EQ(of_host.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(of_host.message()), HasSubstr("is host memory, and the communicator is for device 0"));
  const absl::Status of_other = world.At(0).Start(programs[0], {.out = other.data()}).Wait();
  EXPECT_THAT(std::string(of_other.message()), HasSubstr("is memory of device 1"));
}

TEST(StreamExecutorTest, ARankThatDoesNotComeIsNamed) {
  StreamWorld world(3, On::kStreams, absl::Seconds(2));
  const auto programs = world.Programs(AllReducePlans(3, 8));
  std::latch both(2);
  world.OnEveryRank([&](StreamRank& rank) {
    if (rank.rank == 1) return;
    const FakeMemory memory(rank.rank, 32);
    both.arrive_and_wait();  // a rank that comes much later than the other one would be named
    Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()});
    const absl::Status status = work.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    EXPECT_EQ(work.WaitOnStream(nullptr), status);
    EXPECT_EQ(rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait(), status);
  });
}

TEST(StreamExecutorTest, NoRankIsNamedWhereAWaitEndsAndAllHaveCalled) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  std::latch seen(2);
  world.OnEveryRank([&](StreamRank& rank) {
    const CudaRuntime& cuda = FakeCuda::Table();
    const FakeMemory memory(rank.rank, 32);
    CUstream_st* mine = nullptr;
    ASSERT_EQ(cuda.set_device(rank.rank), kCudaSuccess);
    ASSERT_EQ(cuda.create_stream(&mine), kCudaSuccess);
    ASSERT_EQ(FakeCuda::Launch(mine, [&seen] { seen.wait(); }), kCudaSuccess);
    Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}, {.stream = mine});
    const absl::Status expected = absl::DeadlineExceededError(
        absl::StrCat("rank ", rank.rank, ": the call has not ended in the time given to Wait, and goes on"));
    const absl::Time end = absl::Now() + absl::Seconds(50);
    while (world.At(1 - rank.rank).control->calls == 0 && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    for (int wait = 0; wait < 20; ++wait) EXPECT_EQ(work.Wait(absl::Now() + absl::Milliseconds(20)), expected);
    seen.count_down();
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    cuda.destroy_stream(mine);
  });
}

TEST(StreamExecutorTest, OtherCallsInTheSamePlaceAreNamed) {
  StreamWorld world(2, On::kStreams, absl::Seconds(20));
  const auto rings = world.Programs(AllReducePlans(2, 8));
  const auto longer = world.Programs(AllReducePlans(2, 16));
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(rank.rank, 64);
    const absl::Status status = rank.Start(rank.rank == 0 ? rings[0] : longer[1], {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("count=16"));
  });
}

TEST(StreamExecutorTest, AnAbortEndsWhatIsOnTheStreams) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  const FakeMemory memory(0, 32);
  Work work = world.At(0).Start(programs[0], {.out = memory.data()});
  EXPECT_FALSE(work.done());
  world.At(0).engine->Abort(*world.At(0).channel, absl::AbortedError("enough"));
  EXPECT_THAT(std::string(work.Wait().message()), HasSubstr("enough"));
}

// Plans of bytegrad on two ranks, of which rank 1 sends something else than what it has encoded.
std::vector<Plan> PlansWithABadMessage() {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 2; ++rank) {
    plans.push_back(BuildPlan(*ParseStrategy("bytegrad"), DType::kF32, 5000, rank, 2, kWhole, 0).value());
  }
  for (Step& step : plans[1].steps) {
    if (step.kind == StepKind::kEncode) {
      step.kind = StepKind::kCopy;
      Ref& src = plans[1].refs[step.first_ref + 1];
      src.dtype = DType::kU8;
      src.bytes = plans[1].refs[step.first_ref].bytes;
    }
  }
  return plans;
}

// Whoever launches a graph is told of its bad messages by the next call.
TEST(StreamExecutorTest, AGraphWithABadMessageEndsTheNextCall) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansWithABadMessage());
  const auto rings = world.Programs(AllReducePlans(2, 8));
  world.OnEveryRank([&](StreamRank& rank) {
    const auto place = static_cast<std::size_t>(rank.rank);
    const FakeMemory memory(rank.rank, 5000 * 4);
    std::fill_n(memory.floats(), 5000, 1.0f);
    CapturingStream stream(rank);
    const FakeGraph bad = stream.Capture(programs[place], memory.data());
    const FakeGraph good = stream.Capture(rings[place], memory.data());
    stream.Launch(bad);
    stream.Launch(good);  // the error is still told after a launch that was right
    stream.Synchronize();
    const absl::Status status = rank.Start(rings[place], {.out = memory.data()}, {.stream = stream.get()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("in a CUDA graph"));
  });
}

TEST(StreamExecutorTest, AMessageThatCannotBeDecodedIsDataLoss) {
  StreamWorld world(2);
  const auto programs = world.Programs(PlansWithABadMessage());
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(rank.rank, 5000 * 4);
    std::fill_n(memory.floats(), 5000, 1.0f);
    const absl::Status status =
        rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  });
}

// A schedule that takes the values of all ranks at once, in a world of more ranks than a kernel has operands.
TEST(StreamExecutorTest, StepsWithMoreOperandsThanAKernelTakesAreRefused) {
  StreamWorld world(1);
  for (const int sources : {128, 129}) {
    PlanBuilder b("wide", {.count = 4, .in_place = false}, 0, 1, {});
    b.Reduce(b.out(), std::vector<Ref>(static_cast<std::size_t>(sources), b.in()), ReduceOp::kMax);
    const absl::Status runnable = world.At(0).engine->MakeRunnable(*CompileForStream(*std::move(b).Build(), {}));
    EXPECT_EQ(runnable.code(), sources == 128 ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented) << runnable;
    if (sources == 129) {
      EXPECT_THAT(std::string(runnable.message()), HasSubstr("more operands than kernels for GPUs take, 128"));
    }
  }
}

TEST(StreamExecutorTest, ErrorsOfTheDeviceEndTheCall) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  const FakeMemory memory(0, 32);
  FakeCuda::FailNext("allocate", kCudaOutOfMemory);
  EXPECT_EQ(world.At(0).Start(programs[0], {.out = memory.data()}).Wait().code(), absl::StatusCode::kResourceExhausted);
  FakeCuda::FailNext("record_event", 700);
  const absl::Status status = world.At(0).Start(programs[0], {.out = memory.data()}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
}

TEST(StreamExecutorTest, CallsOnTheHostHaveNoStream) {
  StreamWorld world(1, On::kHost);
  const auto programs = world.Programs(AllReducePlans(1, 8));
  std::vector<float> memory(8);
  const absl::Status status = world.At(0).Start(programs[0], {.out = memory.data()}).WaitOnStream(nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("wait for it with Work::Wait"));
}

}  // namespace
}  // namespace tutti
