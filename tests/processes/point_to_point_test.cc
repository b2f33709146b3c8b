// Receives from any source whose sender dies or is stopped, perhaps in the middle of its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/process_world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Rank kVictim = 2;

class AnySourceAmongProcesses : public ::testing::TestWithParam<int> {};  // ranks per node

std::string NameOfNodes(const ::testing::TestParamInfo<int>& ranks_per_node) {
  return ranks_per_node.param == 0 ? "one_node" : absl::StrCat(ranks_per_node.param, "_per_node");
}

// Any rank might send the message, so the death of a rank is an error at once. Groups without the dead rank go on.
TEST_P(AnySourceAmongProcesses, TheDeathOfARankEndsAReceiveThatIsPending) {
  ProcessWorld world(
      3, {.timeout = absl::Minutes(5)},
      [](Communicator& comm, const ProcessWorld::Report& report) {
        char value = 0;
        if (comm.rank() == kVictim) {
          report("waiting");
          return report(comm.Recv(&value, 1, DType::kU8, kAnySource, {.tag = 1}).Wait().ToString());
        }
        absl::StatusOr<std::unique_ptr<Communicator>> pair = comm.Group({0, 1}, "pair");
        if (!pair.ok()) return report(pair.status().ToString());
        char theirs = 0;
        Work kept = (*pair)->Recv(&theirs, 1, DType::kU8, kAnySource, {.tag = 1});
        report("waiting");
        report(comm.Recv(&value, 1, DType::kU8, kAnySource, {.tag = 1}).Wait().ToString());
        absl::Status status = (*pair)->Send(&value, 1, DType::kU8, 1 - comm.rank(), {.tag = 1}).Wait();
        status.Update(kept.Wait());
        report(absl::StrCat(status.ToString(), " from ", kept.source()));
      },
      nullptr, GetParam());
  for (Rank rank = 0; rank < 3; ++rank) ASSERT_EQ(world.NextLine(rank), "waiting");
  world.Signal(kVictim, SIGKILL);
  for (const Rank rank : {0, 1}) {
    EXPECT_THAT(world.NextLine(rank), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 2"))) << "rank " << rank;
    EXPECT_EQ(world.NextLine(rank), absl::StrCat("OK from ", 1 - rank)) << "rank " << rank;
  }
}

// When the sender dies, the receive may have been filled in part.
TEST_P(AnySourceAmongProcesses, TheDeathOfASenderInTheMiddleOfItsMessageIsTold) {
  constexpr int kRounds = 8;
  constexpr std::int64_t kBytes = 12'000'000;
  for (int round = 0; round < kRounds; ++round) {
    const auto receive_until_it_fails = [](Communicator& comm, const ProcessWorld::Report& report) {
      std::vector<char> data(kBytes);
      absl::Status status;
      for (bool told = false; status.ok(); told = true) {
        status = comm.rank() == kVictim
                     ? comm.Send(data.data(), kBytes, DType::kU8, 0).Wait()
                     : comm.Recv(data.data(), kBytes, DType::kU8, kAnySource, {.tag = comm.rank()}).Wait();
        if (!told && status.ok()) report("running");
      }
      report(status.ToString());
    };
    ProcessWorld world(3, {.timeout = absl::Minutes(5)}, receive_until_it_fails, nullptr, GetParam());
    for (const Rank rank : {Rank{0}, kVictim}) ASSERT_EQ(world.NextLine(rank), "running");
    absl::SleepFor(absl::Milliseconds(round));  // the kill comes somewhere in a message
    world.Signal(kVictim, SIGKILL);
    for (const Rank rank : {0, 1}) {
      ASSERT_THAT(world.NextLine(rank), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 2"))) << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, AnySourceAmongProcesses, ::testing::Values(0, 1), NameOfNodes);

}  // namespace
}  // namespace tutti
