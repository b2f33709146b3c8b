// Which rank an error names when a message never comes: an end of the link that lost the message, where that is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/faults/faulty_world.h"
#include "tutti/schedule.h"

namespace tutti {
namespace {

constexpr absl::Duration kTimeout = absl::Milliseconds(300);

TEST(Blame, ALostMessageBetweenTwoRanksNamesItsSender) {
  for (const int ranks_per_node : {0, 1}) {
    const FaultyWorld world = {
        .size = 2,
        .plan = {.faults = {{.kind = FaultKind::kDrop, .from = 0, .to = 1, .first = 2, .last = 2}}},
        .timeout = kTimeout,
        .ranks_per_node = ranks_per_node};
    const Endings endings = RunWithFaults(world, [](Communicator& comm) -> Outcome {
      for (int round = 0; round < 5; ++round) {
        std::int32_t number = round;
        const CallOptions options = {.tag = round};  // equal tags would let the next message be taken for the lost one
        Work work = comm.rank() == 0 ? comm.Send(&number, 1, DType::kI32, 1, options)
                                     : comm.Recv(&number, 1, DType::kI32, 0, options);
        if (absl::Status status = work.Wait(); !status.ok()) return {status, ""};
        if (number != round) return {absl::OkStatus(), absl::StrCat("received ", number, " in round ", round)};
      }
      return {};
    });
    ExpectLoss(world, endings);
    EXPECT_TRUE(absl::StrContains(endings.ranks[1].status.message(), "rank 0")) << endings.ranks[1].status;
  }
}

// In the broadcast rank 0 sends to 1 and 2, and 2 sends to 3: the lost message is two ranks away from rank 3.
TEST(Blame, ALostMessageOfABroadcastNamesAnEndOfItsLink) {
  const FaultyWorld world = {
      .size = 4,
      .plan = {.faults = {{.kind = FaultKind::kDrop, .from = 0, .to = 2, .first = 0, .last = 0}}},
      .timeout = kTimeout};
  const Endings endings = RunWithFaults(world, [](Communicator& comm) -> Outcome {
    std::vector<float> numbers(10, static_cast<float>(comm.rank()));
    const Schedule* const binomial = FindSchedule(Collective::kBroadcast, "binomial").value();
    return {comm.Broadcast(numbers.data(), numbers.data(), 10, DType::kF32, 0, {.schedule = binomial}).Wait(), ""};
  });
  ASSERT_EQ(endings.events.size(), 1u);
  ExpectLoss(world, endings);
  for (const Rank rank : {2, 3}) {
    const absl::Status& status = endings.ranks[rank].status;
    EXPECT_TRUE(absl::StrContains(status.message(), "for rank 0") ||
                absl::StrContains(status.message(), "for rank 2") ||
                absl::StrContains(status.message(), "rank 0 has left"))
        << "rank " << rank << ": " << status;
  }
}

}  // namespace
}  // namespace tutti
