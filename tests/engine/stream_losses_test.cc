// A remote error of NCCL, which names no rank and often comes before the host knows who has gone: the error of the call
// names the rank, or says that none is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/engine/stream_results.h"
#include "tests/engine/stream_world.h"
#include "tests/harness/fake_nccl.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using On = StreamWorld::On;

void Leave(StreamRank& rank) {
  rank.engine->Close(*rank.channel);
  rank.channel.reset();
}

// A world where a launch of rank 0 meets a remote error.
StreamWorld WithRemoteError(int size, int launch) {
  return StreamWorld(size, On::kStreams, absl::Seconds(60),
                     {{.rank = 0, .launch = launch, .error = nccl::Result::kRemoteError}});
}

// Two ranks that have made a call together, so that NCCL waits for nobody within its calls. The next launch of rank 0
// meets a remote error, although its peer lives.
class AfterARemoteError {
 public:
  AfterARemoteError() : programs_(world_.Programs(AllReducePlans(2, 8))) {
    world_.OnEveryRank([this](StreamRank& rank) {
      const FakeMemory memory(rank.rank, 32);
      const auto& program = programs_[static_cast<std::size_t>(rank.rank)];
      EXPECT_EQ(rank.Start(program, {.out = memory.data()}).Wait(), absl::OkStatus());
    });
  }

  StreamRank& other() { return world_.At(1); }
  // A call of rank 0, which its peer does not make.
  Work Call(absl::Duration timeout = absl::ZeroDuration()) {
    return world_.At(0).Start(programs_[0], {.out = memory_.data()}, {.timeout = timeout});
  }

 private:
  const FakeMemory memory_{0, 32};
  StreamWorld world_ = WithRemoteError(2, /*launch=*/2);  // a call is two launches
  const std::vector<std::shared_ptr<const Program>> programs_;
};

TEST(StreamLossesTest, ARankThatLeavesAfterTheRemoteErrorIsNamed) {
  AfterARemoteError ranks;
  Work work = ranks.Call();
  Leave(ranks.other());
  const absl::Status status = work.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has left"));
}

TEST(StreamLossesTest, TheCauseThatAPeerTellsCounts) {
  AfterARemoteError ranks;
  Work work = ranks.Call();
  ranks.other().engine->Abort(*ranks.other().channel, absl::AbortedError("enough"));
  EXPECT_EQ(work.Wait(), absl::AbortedError("enough (told by rank 1)"));
}

TEST(StreamLossesTest, ADeadlineIsNotPutOff) {
  AfterARemoteError ranks;
  const absl::Status status = ranks.Call(absl::Milliseconds(1)).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 1"));
}

TEST(StreamLossesSlowTest, WithoutNewsTheErrorSaysWhereToLook) {
  const absl::Status status = AfterARemoteError().Call().Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("remote process exited"), HasSubstr("an injected fault"), HasSubstr("all_reduce"),
                    HasSubstr("rank 0 has heard of no rank that died or left: look at")));
}

// Runs the programs of an all_reduce of 32 bytes, by rank, so that NCCL has connected the ranks.
template <typename Programs>
void SumOnce(StreamWorld& world, const Programs& programs) {
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(rank.rank, 32);
    EXPECT_EQ(rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.out = memory.data()}).Wait(),
              absl::OkStatus());
  });
}

// Where a kernel is loaded by its launch, CUDA may wait there for messages of a rank that does not come.
TEST(StreamLossesTest, NoKernelIsLoadedByTheDriver) {
  StreamWorld world(2);
  const auto programs = world.Programs(AllReducePlans(2, 8));
  SumOnce(world, programs);
  FakeCuda::Restart();  // but NCCL has connected the ranks: its launches do not wait for peers on the host
  EXPECT_EQ(world.At(0).engine->MakeRunnable(*programs[0]), absl::OkStatus());
  const FakeMemory memory(0, 32);
  const absl::Status status =
      world.At(0).Start(programs[0], {.out = memory.data()}, {.timeout = absl::Milliseconds(1)}).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 1"));
}

// After such an error the device does nothing any more, and what the call had there is given back at once. It would be
// kept if the device could still write to it, which the engine awaits for half a minute.
TEST(StreamLossesTest, ADeviceWithAnErrorOfItsOwnHasLetGo) {
  constexpr CudaError kNvlinkUncorrectable = 220;
  constexpr CudaError kExternalDevice = 911;
  for (const CudaError error : {kNvlinkUncorrectable, kExternalDevice}) {
    StreamWorld world(2);
    const auto programs = world.Programs(AllReducePlans(2, 8));
    SumOnce(world, programs);
    const FakeMemory memory(0, 32);
    Work work = world.At(0).Start(programs[0], {.out = memory.data()});
    const absl::Time begin = absl::Now();
    FakeCuda::Break(0, error);
    EXPECT_FALSE(work.Wait().ok());
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20)) << error;
    FakeCuda::Break(0, kCudaSuccess);
    const FakeCudaCounts before = FakeCuda::Counts();
    work = Work();
    EXPECT_EQ((FakeCuda::Counts() - before).frees, 1) << error;
  }
}

// Rank 1 has nothing to send and nothing to receive, so it has taken part in the call, and leaves.
TEST(StreamLossesSlowTest, ARankThatHasTakenPartIsNamedToo) {
  StreamWorld world = WithRemoteError(3, /*launch=*/0);
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < 3; ++rank) {
    const CollectiveSpec spec = {
        .collective = Collective::kAllToAllV,
        .send_counts = rank == 1 ? std::vector<std::int64_t>{0, 0, 0} : std::vector<std::int64_t>{1, 0, 1},
        .recv_counts = rank == 1 ? std::vector<std::int64_t>{0, 0, 0} : std::vector<std::int64_t>{1, 0, 1}};
    plans.push_back(BuildPlan(**FindSchedule(Collective::kAllToAllV, "pairwise"), spec, rank, 3, kWhole).value());
  }
  const auto programs = world.Programs(plans);
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory in(rank.rank, 8);
    const FakeMemory out(rank.rank, 8);
    const absl::Status status =
        rank.Start(programs[static_cast<std::size_t>(rank.rank)], {.in = in.data(), .out = out.data()}).Wait();
    if (rank.rank == 1) {
      EXPECT_EQ(status, absl::OkStatus());
      Leave(rank);
      return;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("remote process exited"), HasSubstr("; rank 1 has left"), Not(HasSubstr("no rank"))));
  });
}

// As over sockets: the end of the communicator of the rank that leaves is what breaks the others' launches.
TEST(StreamLossesTest, AnEndThatNcclNoticesFirst) {
  const FakeNccl::With sockets({.peers_notice_ends = true});
  StreamWorld world(3);
  const auto programs = world.Programs(AllReducePlans(3, 8));
  world.OnEveryRank([&](StreamRank& rank) {
    const FakeMemory memory(rank.rank, 32);
    const auto& program = programs[static_cast<std::size_t>(rank.rank)];
    EXPECT_EQ(rank.Start(program, {.out = memory.data()}).Wait(), absl::OkStatus());
    if (rank.rank == 2) return Leave(rank);
    const absl::Status status = rank.Start(program, {.out = memory.data()}).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2 has left"));
  });
}

}  // namespace
}  // namespace tutti
