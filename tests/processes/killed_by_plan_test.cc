// Fault plans that kill processes: the errors of survivors name the rank that died before a certain message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "tests/harness/process_world.h"
#include "transports/forwarding.h"
#include "tutti/faulty_transport.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Rank kVictim = 1;

ProcessWorld::Wrap DiesAt(std::int64_t number) {
  return [number](std::unique_ptr<Transport> inner) {
    FaultPlan plan = {.faults = {{.kind = FaultKind::kKill, .from = kVictim, .first = number, .last = number}},
                      .kills_process = true};
    return MakeFaultyTransport(std::move(inner), std::move(plan)).value();
  };
}

void AllReduceUntilItFails(Communicator& comm, const ProcessWorld::Report& report) {
  for (;;) {
    std::int64_t one = 1;
    const absl::Status status = comm.AllReduce(&one, &one, 1, DType::kI64, ReduceOp::kSum).Wait();
    if (!status.ok()) return report(status.ToString());
    if (one != 3) return report(absl::StrCat("wrong sum ", one));
  }
}

TEST(KilledByPlan, EverySurvivorNamesTheRankThatDied) {
  for (const std::int64_t number : {0, 1, 6, 101}) {
    // The timeout is so long that only the death itself can end the wait.
    ProcessWorld world(3, {.timeout = absl::Minutes(5), .mapping = CommunicatorOptions::Mapping::kNever},
                       AllReduceUntilItFails, DiesAt(number));
    EXPECT_EQ(world.NextLine(kVictim), "") << "a killed process says nothing";
    for (const Rank rank : {0, 2}) {
      EXPECT_THAT(world.NextLine(rank), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 died")))
          << "rank " << rank << ", message " << number;
    }
  }
}

TEST(KilledByPlan, ARankThatDiesWhileItJoinsIsNamed) {
  ProcessWorld world(3, {.timeout = absl::Minutes(5)}, AllReduceUntilItFails, DiesAt(kAtConnect));
  EXPECT_EQ(world.NextLine(kVictim), "");
  for (const Rank rank : {0, 2}) EXPECT_THAT(world.NextLine(rank), HasSubstr("rank 1")) << "rank " << rank;
}

// The last rank notices a second later than the others how the connecting has ended.
class NoticesLate final : public ForwardingTransport {
 public:
  explicit NoticesLate(std::unique_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}

  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override {
    absl::Status status = ForwardingTransport::Connect(rank, addresses, deadline, watch);
    if (rank + 1 == std::ssize(addresses)) absl::SleepFor(absl::Seconds(1));
    return status;
  }
};

// When the late rank notices, rank 0 has already given up and ended.
TEST(KilledByPlan, SoItIsToARankThatNoticesLate) {
  const auto wrap = [](std::unique_ptr<Transport> inner) {
    return std::make_unique<NoticesLate>(DiesAt(kAtConnect)(std::move(inner)));
  };
  ProcessWorld world(3, {.timeout = absl::Minutes(5)}, AllReduceUntilItFails, wrap);
  EXPECT_EQ(world.NextLine(kVictim), "");
  for (const Rank rank : {0, 2}) EXPECT_THAT(world.NextLine(rank), HasSubstr("rank 1")) << "rank " << rank;
}

// A victim that has met the others in the store and ends before it connects: no connection tells the others.
class EndsBeforeItConnects final : public ForwardingTransport {
 public:
  EndsBeforeItConnects(std::unique_ptr<Transport> inner, bool dies)
      : ForwardingTransport(std::move(inner)), dies_(dies) {}

  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override {
    if (rank != kVictim) return ForwardingTransport::Connect(rank, addresses, deadline, watch);
    if (dies_) (void)raise(SIGKILL);
    return absl::FailedPreconditionError("rank 1 has no route");
  }

 private:
  const bool dies_;
};

TEST(KilledByPlan, ARankThatEndsBeforeItConnectsIsNamedAtOnce) {
  for (const int ranks_per_node : {0, 1}) {
    for (const bool dies : {true, false}) {
      const auto wrap = [dies](std::unique_ptr<Transport> inner) {
        return std::make_unique<EndsBeforeItConnects>(std::move(inner), dies);
      };
      const absl::Time begin = absl::Now();
      ProcessWorld world(3, {.timeout = absl::Minutes(5)}, AllReduceUntilItFails, wrap, ranks_per_node);
      for (const Rank rank : {0, 2}) {
        EXPECT_THAT(world.NextLine(rank), HasSubstr(dies ? "rank 1" : "rank 1 has no route (told by rank 1)"))
            << "rank " << rank << ", dies " << dies << ", ranks per node " << ranks_per_node;
      }
      EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
    }
  }
}

}  // namespace
}  // namespace tutti
