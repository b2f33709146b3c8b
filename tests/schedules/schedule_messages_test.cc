// send and recv: a call of two ranks, each with a collective of its own.
#include <gtest/gtest.h>

#include <vector>

#include "tests/schedules/sequential_executor.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

absl::StatusOr<Plan> MessagePlan(Collective collective, Rank rank, Rank peer, std::int64_t count) {
  CollectiveSpec spec;
  spec.collective = collective;
  spec.dtype = DType::kU8;
  spec.count = count;
  spec.root = peer;
  absl::StatusOr<const Schedule*> message = FindSchedule(collective, "message");
  if (!message.ok()) return message.status();
  return BuildPlan(**message, spec, rank, 2, {.segment_bytes = 64});
}

TEST(Message, ArrivesAsItWasSent) {
  for (std::int64_t count : {0, 1, 63, 64, 1000}) {
    absl::StatusOr<Plan> send = MessagePlan(Collective::kSend, 0, 1, count);
    absl::StatusOr<Plan> recv = MessagePlan(Collective::kRecv, 1, 0, count);
    ASSERT_TRUE(send.ok()) << send.status();
    ASSERT_TRUE(recv.ok()) << recv.status();
    Bytes sent(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i);
    const std::vector<Plan> plans = {*send, *recv};
    SequentialExecutor executor(plans, {sent, {}}, {{}, Bytes(sent.size(), kGarbage)},
                                SequentialExecutor::Order::kLastToFirst);
    ASSERT_EQ(executor.Run(), "");
    EXPECT_EQ(executor.out(1), sent);
  }
}

// A Send is not cut into messages: a receive from any source could not tell whether the same rank sent the second one.
TEST(Message, IsOneMessageWhateverItsLength) {
  for (std::int64_t count : {0, 1, 65, 1'000'000}) {
    for (const Rank peer : {0, 1, kAnySource}) {
      absl::StatusOr<Plan> recv = MessagePlan(Collective::kRecv, 1, peer, count);
      ASSERT_TRUE(recv.ok()) << recv.status();
      EXPECT_EQ(recv->steps.size(), 1u);
      EXPECT_EQ(recv->steps[0].peer, peer);
    }
    EXPECT_EQ(MessagePlan(Collective::kSend, 1, 1, count)->steps.size(), 1u);
  }
}

TEST(Message, NeedsAPeer) {
  EXPECT_EQ(MessagePlan(Collective::kSend, 0, kAnySource, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MessagePlan(Collective::kRecv, 1, 2, 1).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tutti
