// Plans on streams whose messages go through the host, with all ranks on one GPU: the results are those of the host
// executor, bit for bit, and failures end the calls of all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <latch>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/engine/stream_results.h"
#include "tests/engine/stream_world.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using On = StreamWorld::On;

TEST(StagedPlansTest, EveryScheduleGivesWhatTheHostGives) {
  EXPECT_GT(CompareSchedulesWithTheHost(On::kStaged, 2), 40);
}

TEST(StagedPlansTest, EveryAlgorithmGivesWhatTheHostGives) {
  EXPECT_GT(CompareAlgorithmsWithTheHost(On::kStaged, {"", ":error_feedback=true", ":hierarchical=true"}, {2, 3, 8}),
            15);
}

// More segments than a rank has slots, in both directions.
TEST(StagedPlansTest, LongMessages) {
  const std::vector<Plan> plans = AllReducePlans(3, (9 << 20) + 5);
  EXPECT_EQ(ResultsOf(plans, On::kStaged, 1), ResultsOf(plans, On::kHost, 1));
}

// After the first run a call allocates nothing.
TEST(StagedPlansTest, OneRunAfterTheOther) {
  StreamWorld world(2, On::kStaged);
  const auto programs = world.Programs(AllReducePlans(2, 1000));
  const FakeMemory a(0, 4000);
  const FakeMemory b(0, 4000);
  Call* calls[2];
  const auto run_all = [&](int runs) {
    world.OnEveryRank([&](StreamRank& rank) {
      for (int run = 0; run < runs; ++run) {
        Call* const call = calls[rank.rank];
        ASSERT_EQ(call->SetBuffersAgain(), absl::OkStatus());
        call->AddReference();
        EXPECT_EQ(Work(call, call->Submit({})).Wait(), absl::OkStatus());
      }
    });
  };
  world.OnEveryRank([&](StreamRank& rank) {
    Call*& call = calls[rank.rank];
    call = Call::Create(programs[static_cast<std::size_t>(rank.rank)], *rank.channel);
    ASSERT_EQ(call->SetBuffers(nullptr, (rank.rank == 0 ? a : b).data(), nullptr), absl::OkStatus());
  });
  run_all(1);
  const FakeCudaCounts before = FakeCuda::Counts();
  run_all(5);
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  EXPECT_EQ(counts.synchronizations, 0);
  EXPECT_EQ(counts.allocations, 0);
  EXPECT_EQ(counts.events, 0);
  EXPECT_EQ(counts.launches, 2 * 5);
  for (Call* const call : calls) call->Release();
}

// Many calls that nobody waits for, each after the input that its stream computes.
TEST(StagedPlansTest, StreamsOfTheCallerWait) {
  StreamWorld world(2, On::kStaged);
  static constexpr std::int64_t kCount = 300000;
  const auto programs = world.Programs(AllReducePlans(2, kCount));
  world.OnEveryRank([&](StreamRank& rank) {
    const CudaRuntime& cuda = FakeCuda::Table();
    const FakeMemory values(0, kCount * 4);
    const FakeMemory copy(0, kCount * 4);
    CUstream_st* mine = nullptr;
    ASSERT_EQ(cuda.create_stream(&mine), kCudaSuccess);
    for (int step = 1; step <= 10; ++step) {
      const auto value = static_cast<float>(step * (rank.rank + 1));
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

TEST(StagedPlansTest, ARankThatDoesNotComeIsNamed) {
  StreamWorld world(3, On::kStaged, absl::Seconds(2));
  const auto programs = world.Programs(AllReducePlans(3, 3 << 20));
  std::latch both(2);
  world.OnEveryRank([&](StreamRank& rank) {
    if (rank.rank == 1) return;
    const FakeMemory memory(0, 12 << 20);
    both.arrive_and_wait();  // a rank that comes much later than the other one would be named
    Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()});
    const absl::Time begin = absl::Now();
    // The call is not enqueued before its messages have come.
    const absl::Status status = work.WaitOnStream(nullptr);
    EXPECT_EQ(work.Wait(), status);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
    EXPECT_EQ(rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait(), status);
  });
}

TEST(StagedPlansTest, OtherCallsInTheSamePlaceAreNamed) {
  StreamWorld world(2, On::kStaged, absl::Seconds(20));
  const auto rings = world.Programs(AllReducePlans(2, 8));
  const auto longer = world.Programs(AllReducePlans(2, 16));
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(0, 64);
    const absl::Status status = rank.Start(rank.rank == 0 ? rings[0] : longer[1], {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("count=16"));
  });
}

// Rank 1 has made the call as well, and its messages are under way. All of them come back before the calls end:
// otherwise the slots would be left to the peers for good.
TEST(StagedPlansTest, AnAbortEndsTheCallsOfAll) {
  const FakeCudaCounts before = FakeCuda::Counts();
  {
    StreamWorld world(3, On::kStaged);
    const auto programs = world.Programs(AllReducePlans(3, 3 << 20));
    const FakeMemory a(0, 12 << 20);
    const FakeMemory b(0, 12 << 20);
    Work first = world.At(0).Start(programs[0], {.out = a.data()});
    Work second = world.At(1).Start(programs[1], {.out = b.data()});
    EXPECT_FALSE(first.done());
    world.At(0).engine->Abort(*world.At(0).channel, absl::AbortedError("enough"));
    EXPECT_THAT(std::string(first.Wait().message()), HasSubstr("enough"));
    EXPECT_THAT(std::string(second.Wait().message()), HasSubstr("enough"));
  }
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  EXPECT_EQ(counts.frees, counts.allocations);
}

TEST(StagedPlansTest, AGraphIsRefused) {
  StreamWorld world(2, On::kStaged);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  const CudaRuntime& cuda = FakeCuda::Table();
  const FakeMemory memory(0, 32);
  CUstream_st* stream = nullptr;
  ASSERT_EQ(cuda.create_stream(&stream), kCudaSuccess);
  // One rank after the other: all are on device 0, where no thread may allocate while a stream is captured.
  for (Rank r = 0; r < world.size(); ++r) {
    FakeCuda::BeginCapture(stream);
    Work work = world.At(r).Start(programs[static_cast<std::size_t>(r)], {.out = memory.data()}, {.stream = stream});
    FakeGraph graph;
    EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), kCudaSuccess);
    const absl::Status status = work.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("through the host"));
  }
  ASSERT_EQ(cuda.destroy_stream(stream), kCudaSuccess);
}

TEST(StagedPlansTest, ErrorsOfTheDeviceEndTheCallsOfAll) {
  for (const char* function : {"allocate_pinned", "copy_async"}) {
    StreamWorld world(2, On::kStaged, absl::Seconds(20));
    const auto programs = world.Programs(AllReducePlans(2, 8));
    const FakeMemory a(0, 32);
    const FakeMemory b(0, 32);
    Work first = world.At(0).Start(programs[0], {.out = a.data()});
    Call* const call = Call::Create(programs[1], *world.At(1).channel);
    ASSERT_EQ(call->SetBuffers(nullptr, b.data(), nullptr), absl::OkStatus());
    FakeCuda::FailNext(function, 2);
    Work second(call, call->Submit({}));
    const absl::Status status = second.Wait();
    EXPECT_FALSE(status.ok()) << function;
    EXPECT_THAT(std::string(status.message()), HasSubstr("message")) << function;
    EXPECT_FALSE(first.Wait().ok()) << function;
  }
}

}  // namespace
}  // namespace tutti
