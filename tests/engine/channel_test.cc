#include "engine/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr CollectiveSpec kSum{.collective = Collective::kAllReduce, .count = 1000};
using Signalled = Channel::Signalled;

class ChannelTest : public ::testing::Test {
 public:
  ~ChannelTest() override {
    for (Call* const call : calls_) call->Release();
  }

 protected:
  using Run = tutti::Run;  // testing::Test has a member of this name

  // A new run of `rank`, whose buffers lie in the arena of that rank.
  Run& NewRun(Rank rank, const CollectiveSpec& spec = kSum) {
    Call* const call = calls_.emplace_back(world_.NewCall(rank, spec, "direct"));
    Buffer& buffer = buffers_.emplace_back(world_.ranks[rank].arena->Allocate(2 * spec.count * 4).value());
    EXPECT_EQ(call->SetBuffers(buffer.data(), buffer.data() + spec.count * 4, nullptr), absl::OkStatus());
    return call->run();
  }
  // A new run of an all_to_all_v in which each rank sends 100 elements to rank 0 and 200 to rank 1.
  Run& NewExchange(Rank rank) {
    const std::int64_t received = rank == 0 ? 100 : 200;
    CollectiveSpec spec{.collective = Collective::kAllToAllV, .send_counts = {100, 200}};
    spec.recv_counts = {received, received};
    Call* const call = calls_.emplace_back(world_.NewCall(rank, spec, "direct"));
    Buffer& buffer = buffers_.emplace_back(world_.ranks[rank].arena->Allocate(700 * 4).value());
    EXPECT_EQ(call->SetBuffers(buffer.data(), buffer.data() + 300 * 4, nullptr), absl::OkStatus());
    return call->run();
  }
  Channel& channel(Rank rank) { return *world_.ranks[rank].channel; }

  TwoRanks world_{/*mapped=*/true};
  std::vector<Buffer> buffers_;
  std::vector<Call*> calls_;
};

TEST_F(ChannelTest, GivesLanesInTurnAndMakesTheNextCallWaitForItsOwn) {
  std::vector<Run*> runs;
  for (int lane = 0; lane < kLanes; ++lane) {
    runs.push_back(&NewRun(0));
    ASSERT_TRUE(channel(0).Admit(*runs.back()));
    EXPECT_EQ(runs.back()->ticket.lane, lane);
    EXPECT_EQ(runs.back()->ticket.sequence, static_cast<std::uint64_t>(lane));
  }
  Run& next = NewRun(0);
  EXPECT_FALSE(channel(0).Admit(next));
  channel(0).Retire(*runs[1], false);
  EXPECT_FALSE(channel(0).Admit(next)) << "it needs lane 0";
  channel(0).Retire(*runs[0], false);
  EXPECT_TRUE(channel(0).Admit(next));
  EXPECT_EQ(next.ticket.lane, 0);
  EXPECT_EQ(next.ticket.lane_run, 2u);
}

TEST_F(ChannelTest, BlocksTheThirdRunOfALaneUntilThePeerHasCompletedTheFirst) {
  for (int call = 0; call < 2 * kLanes; ++call) {
    Run& run = NewRun(0);
    ASSERT_TRUE(channel(0).Admit(run));
    EXPECT_EQ(channel(0).BlockedBy(run), std::nullopt);
    channel(0).Retire(run, false);
  }
  Run& third = NewRun(0);
  ASSERT_TRUE(channel(0).Admit(third));
  EXPECT_EQ(channel(0).BlockedBy(third), 1);
  world_.ranks[1].control->lanes[0].completed = 1;
  EXPECT_EQ(channel(0).BlockedBy(third), std::nullopt);
}

TEST_F(ChannelTest, BlocksARunWhoseScratchAPeerMayStillRead) {
  Run& run = NewRun(0);
  ASSERT_TRUE(channel(0).Admit(run));
  channel(0).Retire(run, /*lends_scratch=*/true);
  ASSERT_TRUE(channel(0).Admit(run));
  EXPECT_EQ(run.ticket.lane, 1);
  EXPECT_EQ(channel(0).BlockedBy(run), 1);
  world_.ranks[1].control->lanes[0].completed = 1;
  EXPECT_EQ(channel(0).BlockedBy(run), std::nullopt);
}

TEST_F(ChannelTest, SignalsTellWhereMemoryLies) {
  Run& mine = NewRun(0);
  Run& theirs = NewRun(1);
  ASSERT_TRUE(channel(0).Admit(mine));
  ASSERT_TRUE(channel(1).Admit(theirs));
  EXPECT_FALSE(channel(0).MayHaveSignalled(mine.ticket, 1, 1));
  channel(1).Signal(theirs);
  ASSERT_TRUE(channel(0).MayHaveSignalled(mine.ticket, 1, 1));
  EXPECT_EQ(channel(0).HasSignalled(mine, 1, 1).value(), Signalled::kYes);
  EXPECT_EQ(channel(0).HasSignalled(mine, 1, 2).value(), Signalled::kNotYet);
  std::byte* const there = mine.bases[static_cast<std::size_t>(BaseOf(Space::kIn, 1))];
  *reinterpret_cast<int*>(buffers_[1].data()) = 4711;
  EXPECT_EQ(*reinterpret_cast<int*>(there), 4711);
}

TEST_F(ChannelTest, AnotherCallInThePlaceOfThisOneIsTold) {
  Run& mine = NewRun(0);
  Run& theirs = NewRun(1, {.collective = Collective::kAllReduce, .count = 999});
  ASSERT_TRUE(channel(0).Admit(mine));
  ASSERT_TRUE(channel(1).Admit(theirs));
  channel(1).Signal(theirs);
  for (const absl::Status& status : {channel(0).HasSignalled(mine, 1, 1).status(), channel(0).CompareCalls(mine)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("count=999"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("count=1000"));
  }
}

TEST_F(ChannelTest, AnAddressOutsideThePeersRegionIsRefused) {
  Run& mine = NewRun(0);
  Run& theirs = NewRun(1);
  ASSERT_TRUE(channel(0).Admit(mine));
  ASSERT_TRUE(channel(1).Admit(theirs));
  channel(1).Signal(theirs);
  const std::int64_t region_bytes = world_.ranks[1].transport->region().bytes;
  constexpr std::int64_t kHalf = 2048;  // bytes of one of the two chunks: the one that this rank reads at the peer
  for (const std::int64_t offset : {std::int64_t{-64}, region_bytes - kHalf + 1, region_bytes + 64}) {
    world_.ranks[1].control->halves[0][1].in = offset;
    const absl::Status status = channel(0).HasSignalled(mine, 1, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << offset;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 announced a buffer outside its memory"));
  }
}

// Rank 0 finds its block at the beginning of the peer's input, rank 1 behind the block for rank 0.
TEST_F(ChannelTest, BlocksLieWhereTheCountsOfThePeerSay) {
  Run& first = NewExchange(0);
  Run& second = NewExchange(1);
  ASSERT_TRUE(channel(0).Admit(first));
  ASSERT_TRUE(channel(1).Admit(second));
  channel(0).Signal(first);
  channel(1).Signal(second);
  EXPECT_EQ(channel(1).HasSignalled(second, 0, 1).value(), Signalled::kYes);
  *reinterpret_cast<int*>(buffers_[0].data() + 100 * 4) = 4711;
  EXPECT_EQ(*reinterpret_cast<int*>(second.bases[BaseOf(Space::kBlock, 0)]), 4711);

  const std::int64_t region_bytes = world_.ranks[1].transport->region().bytes;
  for (const std::int64_t in :
       {std::int64_t{-64}, region_bytes - 100 * 4 + 4, region_bytes, std::numeric_limits<std::int64_t>::max() - 7}) {
    world_.ranks[1].control->halves[0][1].in = in;
    const absl::Status status = channel(0).HasSignalled(first, 1, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << in;
    EXPECT_THAT(std::string(status.message()), HasSubstr("outside its memory"));
  }
}

// Memory that peers cannot map, also what has been withdrawn from the arena, is told by its address in the process.
TEST_F(ChannelTest, PrivateBuffersAreFoundInTheProcessOfThePeer) {
  constexpr CollectiveSpec kFromFirst{.collective = Collective::kBroadcast, .count = 1000};
  const std::vector<float> ordinary(1000);
  const Buffer withdrawn = world_.ranks[0].arena->Allocate(4000).value();
  world_.ranks[0].arena->Withdraw({withdrawn.data(), 4000});
  std::vector<float> outs[2] = {std::vector<float>(1000), std::vector<float>(1000)};
  const void* const ins[] = {ordinary.data(), withdrawn.data()};
  for (std::size_t i = 0; i < 2; ++i) {
    Call* const sender = calls_.emplace_back(world_.NewReadingCall(0, kFromFirst, "direct"));
    Call* const receiver = calls_.emplace_back(world_.NewReadingCall(1, kFromFirst, "direct"));
    ASSERT_EQ(sender->SetBuffers(ins[i], outs[0].data(), nullptr), absl::OkStatus());
    ASSERT_EQ(receiver->SetBuffers(nullptr, outs[1].data(), nullptr), absl::OkStatus());
    Run& run = receiver->run();
    ASSERT_TRUE(channel(0).Admit(sender->run()));
    ASSERT_TRUE(channel(1).Admit(run));
    channel(0).Signal(sender->run());
    ASSERT_EQ(channel(1).HasSignalled(run, 0, 1).value(), Signalled::kYes);
    EXPECT_TRUE(run.ticket.any_private_buffers);
    run.current = run.program.for_private_buffers.get();
    ASSERT_EQ(channel(1).FindBuffersOfPeers(run), absl::OkStatus());
    EXPECT_TRUE(run.in_process[0]);
    EXPECT_EQ(static_cast<const void*>(run.bases[BaseOf(Space::kIn, 0)]), ins[i]);

    // The place that a peer tells is checked here, too.
    Announcement& told = world_.ranks[0].control->halves[i][1];
    told.in = std::numeric_limits<std::int64_t>::min();
    EXPECT_EQ(channel(1).FindBuffersOfPeers(run).code(), absl::StatusCode::kDataLoss);
    told.in = Announcement::kPrivateBuffers;
    EXPECT_EQ(channel(1).FindBuffersOfPeers(run).code(), absl::StatusCode::kDataLoss);
    told.in = Announcement::kNotLent;
    EXPECT_EQ(channel(1).FindBuffersOfPeers(run).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(ChannelTest, CountsThatLeadOutOfThePeersRegionAreRefused) {
  Run& theirs = NewExchange(0);
  Run& mine = NewExchange(1);
  ASSERT_TRUE(channel(0).Admit(theirs));
  ASSERT_TRUE(channel(1).Admit(mine));
  channel(0).Signal(theirs);
  // Rank 0 tells counts at the end of the scratch of its lane: those that it sends, then those that it receives.
  auto& scratch = world_.ranks[0].control->scratch[1];
  auto* const counts = reinterpret_cast<std::int64_t*>(scratch.data() + scratch.size() - 4 * sizeof(std::int64_t));
  ASSERT_EQ(counts[0], 100);
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t first : {kLargest, kLargest / 4, std::int64_t{1} << 40}) {
    counts[0] = first;
    const absl::Status status = channel(1).HasSignalled(mine, 0, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << first;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 announced a block of 200 elements"));
  }
}

// The peer has lent no memory, as when the plans of two ranks touch different spaces. An offset of 0 must not be taken
// for a buffer of the peer, because the presence of the peer lies there.
TEST_F(ChannelTest, MemoryThatThePeerHasNotLentIsNotTouched) {
  Run& mine = NewRun(0);
  Run& theirs = NewRun(1);
  theirs.bases[static_cast<std::size_t>(Space::kIn)] = nullptr;
  ASSERT_TRUE(channel(0).Admit(mine));
  ASSERT_TRUE(channel(1).Admit(theirs));
  channel(1).Signal(theirs);
  const absl::Status status = channel(0).HasSignalled(mine, 1, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("touches the in space of rank 1, but rank 1 has not lent that space"));
}

TEST_F(ChannelTest, ARefusalEndsTheRunWhenAllHaveHeardOfIt) {
  Run& mine = NewRun(0);
  Run& theirs = NewRun(1);
  ASSERT_TRUE(channel(0).Admit(mine));
  ASSERT_TRUE(channel(1).Admit(theirs));
  channel(1).Refuse(theirs.ticket, 1);
  EXPECT_EQ(channel(0).HasSignalled(mine, 1, 1).value(), Signalled::kNever);
  EXPECT_EQ(channel(0).RefusedBy(mine.ticket, 1), 1);
  EXPECT_EQ(channel(1).StillTakesPart(theirs.ticket), 0);
  channel(0).Refuse(mine.ticket, 1);
  EXPECT_EQ(channel(0).StillTakesPart(mine.ticket), std::nullopt);
  EXPECT_EQ(channel(1).StillTakesPart(theirs.ticket), std::nullopt);
}

TEST_F(ChannelTest, KnowsWhoHasNotCalledAndWhoHasLeft) {
  Run& mine = NewRun(0);
  ASSERT_TRUE(channel(0).Admit(mine));
  EXPECT_EQ(channel(0).HasNotCalled(mine.ticket, 0), 1);
  EXPECT_FALSE(channel(0).HasLeftWithout(mine, 1));
  Run& theirs = NewRun(1);
  ASSERT_TRUE(channel(1).Admit(theirs));
  EXPECT_EQ(channel(0).HasNotCalled(mine.ticket, 0), std::nullopt);
  channel(1).Retire(theirs, false);
  calls_.back()->Release();
  calls_.pop_back();
  TwoRanks::Close(world_.ranks[1]);
  EXPECT_FALSE(channel(0).HasLeftWithout(mine, 1)) << "it has taken part";
  channel(0).Retire(mine, false);
  Run& next = NewRun(0);
  ASSERT_TRUE(channel(0).Admit(next));
  EXPECT_TRUE(channel(0).HasLeftWithout(next, 1));
  EXPECT_EQ(channel(0).HasNotCalled(next.ticket, 1), std::nullopt) << "it will never call";
}

// Two containers of one node may map each other's memory and exchange messages over wires: the end of a communicator
// shows in memory before the last messages of its rank have come.
TEST_F(ChannelTest, WhoseMessageIsOnItsWayHasNotLeftARecvThoughItHasClosed) {
  constexpr CollectiveSpec kRecv{.collective = Collective::kRecv, .count = 8, .root = 1};
  Run& mine = calls_.emplace_back(world_.NewCall(0, kRecv, "message"))->run();
  ASSERT_TRUE(channel(0).Admit(mine));
  TwoRanks::Close(world_.ranks[1]);
  world_.ranks[0].transport->receiving = true;
  EXPECT_FALSE(channel(0).HasLeftWithout(mine, 1));
  EXPECT_FALSE(channel(0).HasLeftWithout(mine, kAnySource));
  world_.ranks[0].transport->receiving = false;
  EXPECT_TRUE(channel(0).HasLeftWithout(mine, 1));
  EXPECT_TRUE(channel(0).HasLeftWithout(mine, kAnySource));
  channel(0).GiveUp(mine);
}

TEST(ChannelTags, AreOneMessagesOwn) {
  TwoRanks world(/*mapped=*/false);
  std::set<std::uint64_t> sent;
  std::set<std::uint64_t> received;
  std::vector<Call*> calls;
  int messages = 0;
  for (const CollectiveSpec& spec : {CollectiveSpec{.collective = Collective::kAllReduce, .count = 1000},
                                     CollectiveSpec{.collective = Collective::kAllReduce, .count = 1000},
                                     CollectiveSpec{.collective = Collective::kSend, .count = 10, .root = 1}}) {
    const bool to_peer = spec.collective == Collective::kSend;
    Call* const call = calls.emplace_back(world.NewCall(0, spec, to_peer ? "message" : "ring"));
    tutti::Run& run = call->run();
    ASSERT_TRUE(world.ranks[0].channel->Admit(run));
    for (const Instruction& instruction : run.program.instructions) {
      const bool sends = instruction.kind == StepKind::kSend;
      if (!sends && instruction.kind != StepKind::kRecv) continue;
      const std::uint64_t tag = world.ranks[0].channel->TagOf(run, instruction);
      EXPECT_TRUE((sends ? sent : received).insert(tag).second) << tag;
      EXPECT_EQ(tag >> 29, 7u) << "the channel's number at the receiver";
      EXPECT_EQ(tag >> 28 & 1, to_peer ? 1u : 0u);
      ++messages;
    }
    world.ranks[0].channel->GiveUp(run);
  }
  EXPECT_GE(messages, 9);
  for (Call* const call : calls) call->Release();
}

}  // namespace
}  // namespace tutti
