#include "engine/host_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Polled = Executor::Polled;

constexpr std::int64_t kCount = 1000;

// The completion of a message that the test itself sends: how often, and with what status, the message ended.
struct Ended : Completion {
  Ended() {
    done = [](Completion* self, const absl::Status& status) {
      auto& ended = *static_cast<Ended*>(self);
      ended.result = status;
      ++ended.times;
    };
  }
  absl::Status result;
  int times = 0;
};

// Rank 0 has an executor; the test is rank 1.
class HostExecutorTest : public ::testing::Test {
 public:
  ~HostExecutorTest() override {
    executor().End(*world_.ranks[0].channel, absl::CancelledError("the test is over"));
    for (Call* const call : calls_) call->Release();
  }

 protected:
  Executor& executor() { return *world_.ranks[0].executor; }
  Transport& peer() { return *world_.ranks[1].transport; }

  // A call of rank 0 that has been handed to its executor.
  Call& Add(const CollectiveSpec& spec, absl::string_view schedule, void* out) {
    Call* const call = calls_.emplace_back(world_.NewCall(0, spec, schedule));
    EXPECT_EQ(call->SetBuffers(out, out, nullptr), absl::OkStatus());
    call->KeepForEngine();
    executor().Add(call->run());
    return *call;
  }

  TwoRanks world_{/*mapped=*/false};
  std::vector<Call*> calls_;
  std::vector<float> values_ = std::vector<float>(kCount, 1.0f);
};

constexpr CollectiveSpec kRecv{.collective = Collective::kRecv, .count = kCount, .root = 1};

TEST_F(HostExecutorTest, IsIdleWithoutCalls) {
  EXPECT_TRUE(executor().idle());
  EXPECT_EQ(executor().Poll(), Polled::kNothing);
  EXPECT_TRUE(executor().all_in_background());
  EXPECT_FALSE(executor().waits_for_messages() || executor().waits_for_signals() || executor().waits_for_completions());
}

TEST_F(HostExecutorTest, ReceivesWhenTheMessageArrivesAndNoSooner) {
  Call& call = Add(kRecv, "message", values_.data());
  EXPECT_EQ(executor().Poll(), Polled::kMoved);
  EXPECT_TRUE(executor().waits_for_messages());
  EXPECT_EQ(executor().Poll(), Polled::kNothing);
  EXPECT_FALSE(call.done(1));
  EXPECT_EQ(call.run().FirstBlocker()->Place(), "step 0 (recv)");
  EXPECT_EQ(call.run().FirstBlocker()->peer, 1);

  std::vector<float> sent(kCount);
  std::iota(sent.begin(), sent.end(), 0.0f);
  Ended ended;
  const std::uint64_t tag = call.run().channel.TagOf(call.run(), call.program().instructions[0]);
  peer().endpoint(0).Send(tag, sent.data(), kCount * 4, &ended);
  for (int look = 0; look < 10; ++look) {
    executor().Poll();
    peer().Progress();
  }
  EXPECT_EQ(ended.times, 1);
  EXPECT_TRUE(call.done(1));
  EXPECT_EQ(call.result(), absl::OkStatus());
  EXPECT_EQ(values_, sent);
  EXPECT_TRUE(executor().idle());
  EXPECT_EQ(executor().calls(), 1);
}

TEST_F(HostExecutorTest, ACallWhoseMessageIsThereEndsInTheFirstPoll) {
  // The tag of the call is that of a first call, which takes no message that has not been sent.
  Call& first = Add(kRecv, "message", values_.data());
  const std::vector<float> sent(kCount, 2.0f);
  Ended ended[2];
  const std::uint64_t tag = first.run().channel.TagOf(first.run(), first.program().instructions[0]);
  executor().Poll();
  for (Ended& end : ended) peer().endpoint(0).Send(tag, sent.data(), kCount * 4, &end);
  while (!first.done(1)) executor().Poll();
  std::vector<float> later(kCount);
  Call& second = Add(kRecv, "message", later.data());
  ASSERT_EQ(second.run().channel.TagOf(second.run(), second.program().instructions[0]), tag);
  EXPECT_EQ(executor().Poll(), Polled::kMoved);
  EXPECT_TRUE(second.done(1));
  EXPECT_EQ(later, sent);
  peer().Progress();
  EXPECT_EQ(ended[1].times, 1);
}

TEST_F(HostExecutorTest, AMessageOfAnotherLengthIsAnErrorOfAll) {
  Call& call = Add(kRecv, "message", values_.data());
  Call& other = Add(kRecv, "message", values_.data());
  executor().Poll();
  Ended ended;
  const std::uint64_t tag = call.run().channel.TagOf(call.run(), call.program().instructions[0]);
  peer().endpoint(0).Send(tag, values_.data(), 12, &ended);
  Polled polled = Polled::kNothing;
  for (int look = 0; look < 10 && polled != Polled::kFailed; ++look) {
    polled = executor().Poll();
    peer().Progress();
  }
  EXPECT_EQ(polled, Polled::kFailed);
  EXPECT_THAT(std::string(executor().error().message()), HasSubstr("12"));
  EXPECT_FALSE(call.done(1)) << "the engine ends calls";
  world_.ranks[0].transport->Shutdown(executor().error());
  executor().End(*world_.ranks[0].channel, executor().error());
  for (Call* const each : {&call, &other}) {
    EXPECT_TRUE(each->done(1));
    EXPECT_EQ(each->result(), executor().error());
  }
  EXPECT_TRUE(executor().idle());
}

TEST_F(HostExecutorTest, ARunIsNotToldTheErrorOfAnEarlierOne) {
  Call& call = Add(kRecv, "message", values_.data());
  ASSERT_GT(call.program().output_steps, 0u);
  call.Finish(absl::ResourceExhaustedError("the first run"));
  call.MarkOutputFinal();  // of the second run
  EXPECT_EQ(call.Wait(2, /*output_only=*/true, kNeverNanos), absl::OkStatus());
  EXPECT_EQ(call.Wait(1, /*output_only=*/false, kNeverNanos), absl::ResourceExhaustedError("the first run"));
  // Nor is the error of an earlier run forgotten, or taken for OK, when later runs fail.
  call.Finish(absl::OkStatus());
  call.Finish(absl::ResourceExhaustedError("the third run"));
  EXPECT_EQ(call.Wait(1, /*output_only=*/false, kNeverNanos), absl::ResourceExhaustedError("the first run"));
  EXPECT_EQ(call.Wait(2, /*output_only=*/false, kNeverNanos), absl::OkStatus());
  EXPECT_EQ(call.result(), absl::ResourceExhaustedError("the third run"));
  for (int run = 4; run < 40; ++run) call.Finish(absl::AbortedError("enough"));
  EXPECT_EQ(call.Wait(1, /*output_only=*/false, kNeverNanos).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(call.Wait(39, /*output_only=*/false, kNeverNanos), absl::AbortedError("enough"));
}

// Five collectives, four lanes: the fifth waits, and a later one does not overtake it, but a Recv does.
TEST_F(HostExecutorTest, CollectivesKeepTheirOrder) {
  std::vector<std::vector<float>> buffers(6, values_);
  const CollectiveSpec sum{.collective = Collective::kAllReduce, .count = kCount, .in_place = true};
  for (int i = 0; i < 6; ++i) Add(sum, "ring", buffers[static_cast<std::size_t>(i)].data());
  Add(kRecv, "message", values_.data());
  executor().Poll();
  ASSERT_EQ(executor().active().size(), 5u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(executor().active()[i], &calls_[i]->run());
  EXPECT_EQ(executor().active()[4], &calls_[6]->run());
  EXPECT_TRUE(executor().Uses(*world_.ranks[0].channel));
  EXPECT_FALSE(executor().Uses(*world_.ranks[1].channel));
  world_.ranks[0].transport->Shutdown(absl::AbortedError("enough"));
  executor().End(*world_.ranks[0].channel, absl::AbortedError("enough"));
  for (const Call* const call : calls_) EXPECT_EQ(call->result(), absl::AbortedError("enough"));
}

TEST(HostExecutorMapped, OnePollWaitsForASignalAndTouchesNoPeerThatHasFailed) {
  TwoRanks world(/*mapped=*/true);
  const CollectiveSpec sum{.collective = Collective::kAllReduce, .count = kCount};
  Call* calls[2];
  std::vector<Buffer> buffers;
  for (Rank rank = 0; rank < 2; ++rank) {
    TestRank& its = world.ranks[rank];
    Buffer& buffer = buffers.emplace_back(its.arena->Allocate(2 * kCount * 4).value());
    std::fill_n(buffer.as<float>().data(), kCount, static_cast<float>(rank + 1));
    calls[rank] = world.NewCall(rank, sum, "direct");
    ASSERT_EQ(calls[rank]->SetBuffers(buffer.data(), buffer.data() + kCount * 4, nullptr), absl::OkStatus());
    calls[rank]->KeepForEngine();
    its.executor->Add(calls[rank]->run());
  }
  EXPECT_EQ(world.ranks[0].executor->Poll(), Polled::kMoved);
  EXPECT_EQ(world.ranks[0].executor->Poll(), Polled::kNothing);
  EXPECT_TRUE(world.ranks[0].executor->waits_for_signals());
  EXPECT_EQ(calls[0]->run().FirstBlocker()->what, "wait");
  EXPECT_EQ(world.ranks[1].executor->Poll(), Polled::kMoved);

  world.ranks[0].control->failed_by = 2;  // rank 1, plus 1, as the engine of rank 1 would write it
  const std::vector<float> before(buffers[0].as<float>().begin(), buffers[0].as<float>().end());
  world.ranks[0].executor->Poll();
  EXPECT_EQ(std::vector<float>(buffers[0].as<float>().begin(), buffers[0].as<float>().end()), before);
  EXPECT_FALSE(calls[0]->done(1));

  world.ranks[0].control->failed_by = 0;
  for (int poll = 0; poll < 10; ++poll) {
    for (TestRank& rank : world.ranks) rank.executor->Poll();
  }
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(calls[rank]->done(1));
    EXPECT_THAT(buffers[rank].as<float>().subspan(kCount), ::testing::Each(3.0f));
    calls[rank]->Release();
  }
}

// The word of rank 0 in which rank 1 says that it has given the channel up.
std::atomic<std::uint64_t>* failed_by = nullptr;

// A codec whose Encode is the moment in which rank 1 gives the channel up.
constexpr Codec kGivesUp = {
    .name = "gives_up",
    .summary = "",
    .error_bound = "",
    .largest_error = nullptr,
    .options = "",
    .defaults = {},
    .validate = [](const CodecOptions&) { return absl::OkStatus(); },
    .encoded_bytes = [](std::int64_t count, const CodecOptions&) { return count; },
    .encode = [](absl::Span<const float>, const CodecOptions&, std::uint64_t,
                 absl::Span<std::uint8_t>) { *failed_by = 2; },  // rank 1, plus 1
    .decode = [](absl::Span<const std::uint8_t>, const CodecOptions&, bool,
                 absl::Span<float>) { return absl::OkStatus(); },
};

TEST(HostExecutorMapped, AShortRunTouchesNoPeerThatHasFailedWhileTheRunWaited) {
  TwoRanks world(/*mapped=*/true);
  failed_by = &world.ranks[0].control->failed_by;
  Call* calls[2];
  std::vector<Buffer> buffers;
  for (Rank rank = 0; rank < 2; ++rank) {
    TestRank& its = world.ranks[rank];
    const CollectiveSpec sum{.collective = Collective::kAllReduce, .count = 4};
    PlanBuilder b("copy_to_the_other", sum, rank, 2, {.peers_mapped = true});
    if (rank == 0) b.Encode(b.Scratch(DType::kU8, 4), b.in(), {.codec = &kGivesUp, .options = {}});
    b.Signal();
    b.Wait(1 - rank);
    b.Copy(b.out().At(1 - rank), b.in());
    calls[rank] = Call::Create(Compile(std::move(b).Build().value()), *its.channel);
    Buffer& buffer = buffers.emplace_back(its.arena->Allocate(32).value());
    std::fill_n(buffer.as<float>().data(), 8, static_cast<float>(rank + 1));
    ASSERT_EQ(calls[rank]->SetBuffers(buffer.data(), buffer.data() + 16, nullptr), absl::OkStatus());
    calls[rank]->KeepForEngine();
  }
  world.ranks[1].executor->Add(calls[1]->run());
  EXPECT_EQ(world.ranks[1].executor->Poll(), Polled::kMoved);
  EXPECT_FALSE(world.ranks[0].executor->RunAtOnce(calls[0]->run()));
  EXPECT_THAT(buffers[1].as<float>().subspan(4), ::testing::Each(2.0f));

  *failed_by = 0;
  for (int poll = 0; poll < 10; ++poll) {
    for (TestRank& rank : world.ranks) rank.executor->Poll();
  }
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(calls[rank]->done(1));
    EXPECT_THAT(buffers[rank].as<float>().subspan(4), ::testing::Each(rank == 0 ? 2.0f : 1.0f));
    calls[rank]->Release();
  }
}

// A peer that has failed may have changed its memory before this rank read from it.
TEST_F(HostExecutorTest, NothingIsSentAfterAPeerHasFailed) {
  world_.ranks[0].control->failed_by = 2;  // rank 1, plus 1
  Call& call = Add({.collective = Collective::kSend, .count = kCount, .root = 1}, "message", values_.data());
  executor().Poll();
  EXPECT_FALSE(executor().waits_for_messages());
  EXPECT_FALSE(call.done(1));
  EXPECT_EQ(call.run().steps_left(), 1u);

  world_.ranks[0].control->failed_by = 0;
  executor().Poll();
  EXPECT_TRUE(executor().waits_for_messages() || call.done(1));
  world_.ranks[0].transport->Shutdown(absl::AbortedError("enough"));  // no message is under way any more
}

// How often rank 0 says that it touches memory of rank 1, in one all_reduce of `count` values by `schedule`.
std::uint32_t TimesTouching(std::int64_t count, absl::string_view schedule) {
  TwoRanks world(/*mapped=*/true);
  const CollectiveSpec sum{.collective = Collective::kAllReduce, .count = count, .in_place = true};
  Call* calls[2];
  std::vector<Buffer> buffers;
  for (Rank rank = 0; rank < 2; ++rank) {
    TestRank& its = world.ranks[rank];
    Buffer& buffer = buffers.emplace_back(its.arena->Allocate(static_cast<std::size_t>(count) * 4).value());
    std::fill_n(buffer.as<float>().data(), count, static_cast<float>(rank + 1));
    calls[rank] = world.NewCall(rank, sum, schedule);
    EXPECT_EQ(calls[rank]->SetBuffers(nullptr, buffer.data(), nullptr), absl::OkStatus());
    calls[rank]->KeepForEngine();
    its.executor->Add(calls[rank]->run());
  }
  for (int poll = 0; poll < 100 && !(calls[0]->done(1) && calls[1]->done(1)); ++poll) {
    for (TestRank& rank : world.ranks) rank.executor->Poll();
  }
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(calls[rank]->done(1));
    EXPECT_THAT(buffers[rank].as<float>(), ::testing::Each(3.0f));
    calls[rank]->Release();
  }
  EXPECT_EQ(world.ranks[0].presence->touching % 2, 0U);
  return world.ranks[0].presence->touching / 2;
}

TEST(HostExecutorMapped, SaysThatItTouchesBuffersOfAPeer) {
  EXPECT_GT(TimesTouching(kCount, "direct"), 0U) << "reads and writes the peer's buffer";
  EXPECT_EQ(TimesTouching(4, "direct"), 0U) << "only reads the scratch of the peer's lane";
  constexpr std::int64_t kLong = kLaneScratchBytes;  // elements; as bytes, four lanes' scratch
  EXPECT_EQ(TimesTouching(kLong, "staged"), 0U) << "only reads scratch of the peer";
}

// A block that the arena has withdrawn since the last run serves like memory that was never in the arena.
TEST(HostExecutorMapped, MemoryWithdrawnFromTheArenaIsStagedWhenItIsNamedAgain) {
  TwoRanks world(/*mapped=*/true);
  Call* calls[2];
  std::vector<Buffer> buffers;
  for (Rank rank = 0; rank < 2; ++rank) {
    Buffer& buffer = buffers.emplace_back(world.ranks[rank].arena->Allocate(kCount * 4).value());
    std::fill_n(buffer.as<float>().data(), kCount, static_cast<float>(rank + 1));
    calls[rank] =
        world.NewCall(rank, {.collective = Collective::kAllReduce, .count = kCount, .in_place = true}, "direct");
    ASSERT_EQ(calls[rank]->SetBuffers(nullptr, buffer.data(), nullptr), absl::OkStatus());
  }
  world.ranks[0].arena->Withdraw({buffers[0].data(), kCount * 4});
  for (Rank rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(calls[rank]->SetBuffersAgain(), absl::OkStatus());
    calls[rank]->KeepForEngine();
    world.ranks[rank].executor->Add(calls[rank]->run());
  }
  for (int poll = 0; poll < 100 && !(calls[0]->done(1) && calls[1]->done(1)); ++poll) {
    for (TestRank& rank : world.ranks) rank.executor->Poll();
  }
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(calls[rank]->done(1));
    EXPECT_EQ(calls[rank]->result(), absl::OkStatus());
    EXPECT_THAT(buffers[rank].as<float>(), ::testing::Each(3.0f));
    calls[rank]->Release();
  }
  EXPECT_EQ(world.ranks[0].executor->staged_bytes(), 2 * kCount * 4) << "in and out";
  EXPECT_EQ(world.ranks[1].executor->staged_bytes(), 0);
}

// The steps of a small call do not ask whether a peer has given the channel up, so the end must.
TEST(HostExecutorMapped, ACallThatOnlyReadScratchDoesNotEndAfterAPeerHasFailed) {
  TwoRanks world(/*mapped=*/true);
  Call* calls[2];
  float values[2] = {1, 2};
  for (Rank rank = 0; rank < 2; ++rank) {
    calls[rank] = world.NewCall(rank, {.collective = Collective::kAllReduce, .count = 1, .in_place = true}, "direct");
    ASSERT_EQ(calls[rank]->SetBuffers(nullptr, &values[rank], nullptr), absl::OkStatus());
    calls[rank]->KeepForEngine();
    world.ranks[rank].executor->Add(calls[rank]->run());
  }
  EXPECT_EQ(world.ranks[0].executor->Poll(), Polled::kMoved);
  EXPECT_EQ(world.ranks[1].executor->Poll(), Polled::kMoved);
  world.ranks[0].control->failed_by = 2;  // rank 1, plus 1, as the engine of rank 1 would write it
  for (int poll = 0; poll < 10; ++poll) world.ranks[0].executor->Poll();
  EXPECT_EQ(calls[0]->run().steps_left(), 0U);
  EXPECT_FALSE(calls[0]->done(1));

  world.ranks[0].control->failed_by = 0;
  world.ranks[0].executor->Poll();
  EXPECT_TRUE(calls[0]->done(1));
  for (Call* const call : calls) call->Release();
}

}  // namespace
}  // namespace tutti
