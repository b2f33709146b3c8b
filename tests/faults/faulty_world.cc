#include "tests/faults/faulty_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace tutti {
namespace {

// The bound on the time of every rank, wide because machines may be busy.
constexpr absl::Duration kInTime = absl::Seconds(20);
// The words before the list in an error of a wait at the store.
constexpr absl::string_view kMissingRanks = "missing ranks: ";

std::string Text(const Endings& endings) {
  std::string text = absl::StrCat("after ", absl::FormatDuration(endings.took), "\n");
  for (std::size_t rank = 0; rank < endings.ranks.size(); ++rank) {
    const Outcome& outcome = endings.ranks[rank];
    absl::StrAppend(&text, "  rank ", rank, ": ", outcome.status.ToString(), " ", outcome.wrong, "\n");
  }
  for (const FaultEvent& event : endings.events) {
    absl::StrAppend(&text, "  fault ", static_cast<int>(event.kind), " of message ", event.number, " from rank ",
                    event.from, " to rank ", event.to, "\n");
  }
  return text;
}

void ExpectNothingWrong(const Endings& endings) {
  for (const Outcome& outcome : endings.ranks) EXPECT_EQ(outcome.wrong, "") << Text(endings);
}

// The rank for which a DeadlineExceeded says that `waiter` waited; -1: it does not say so.
Rank RankWaitedFor(const absl::Status& status, Rank* waiter) {
  static const std::regex kWaited("rank ([0-9]+) waited [^ ]+ for rank ([0-9]+)");
  std::smatch match;
  const std::string text(status.message());
  if (!std::regex_search(text, match, kWaited)) return -1;
  *waiter = std::stoi(match[1]);
  return std::stoi(match[2]);
}

Endings RunOnce(const FaultyWorld& world, const std::function<Outcome(Communicator&)>& body) {
  Endings endings;
  endings.ranks.resize(world.size);
  std::mutex mutex;
  WorldOptions options;
  options.transport = world.transport;
  options.ranks_per_node = world.ranks_per_node;
  options.communicator.timeout = world.timeout;
  options.communicator.mapping = CommunicatorOptions::Mapping::kNever;
  options.wrap = [&](Rank, std::unique_ptr<Transport> inner) {
    FaultPlan plan = world.plan;
    plan.on_fault = [&](const FaultEvent& event) {
      const std::lock_guard<std::mutex> lock(mutex);
      endings.events.push_back(event);
    };
    return MakeFaultyTransport(std::move(inner), std::move(plan)).value();
  };
  options.cannot_join = [&](Rank rank, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex);
    endings.ranks[rank].status = status;
  };
  const absl::Time start = absl::Now();
  RunWorld(world.size, options, [&](Communicator& comm) { endings.ranks[comm.rank()] = body(comm); });
  endings.took = absl::Now() - start;
  return endings;
}

// Whether `status` is that of a wait in vain which no fault in `endings` explains. Faults do not reach the store: a
// rank that waits there in vain waits for one that has died, or for one that is too slow.
bool WaitedForTheSlow(const absl::Status& status, const Endings& endings) {
  if (!absl::IsDeadlineExceeded(status)) return false;
  if (endings.events.empty()) return true;
  // A rank that names itself had all that the call needed, but no time left to end the call.
  Rank waiter = -1;
  const Rank named = RankWaitedFor(status, &waiter);
  if (named >= 0 && named == waiter) return true;
  return absl::StrContains(status.message(), kMissingRanks) &&
         std::none_of(endings.events.begin(), endings.events.end(), [&](const FaultEvent& event) {
           return event.kind == FaultKind::kKill && ListsAsMissing(event.from, status);
         });
}

// The lengths that an error names, of a message that has another length than its receive.
struct Lengths {
  Rank sender = -1;
  std::int64_t holds = 0, expected = 0;
};
std::optional<Lengths> LengthsIn(const absl::Status& status) {
  static const std::regex kLengths("message from rank ([0-9]+) holds ([0-9]+) bytes; the receive expects ([0-9]+)");
  std::smatch match;
  const std::string text(status.message());
  if (!absl::IsInvalidArgument(status) || !std::regex_search(text, match, kLengths)) return std::nullopt;
  return Lengths{.sender = std::stoi(match[1]), .holds = std::stoll(match[2]), .expected = std::stoll(match[3])};
}

// Whether one of the faults befell a message of `rank`.
bool BefellMessageOf(Rank rank, const Endings& endings) {
  return std::any_of(endings.events.begin(), endings.events.end(),
                     [rank](const FaultEvent& event) { return event.from == rank; });
}

}  // namespace

Endings RunWithFaults(const FaultyWorld& world, const std::function<Outcome(Communicator&)>& body) {
  FaultyWorld patient = world;
  for (int attempt = 0;; ++attempt) {
    Endings endings = RunOnce(patient, body);
    const bool too_slow = std::any_of(endings.ranks.begin(), endings.ranks.end(), [&](const Outcome& outcome) {
      return WaitedForTheSlow(outcome.status, endings);
    });
    if (!too_slow || world.timeout >= kLongTimeout || attempt == 4) return endings;
    patient.timeout *= 2;
  }
}

bool ListsAsMissing(Rank rank, const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return false;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(status.message(), absl::MaxSplits(kMissingRanks, 1));
  const std::vector<std::string> missing = absl::StrSplit(parts.second, ", ");
  return std::find(missing.begin(), missing.end(), absl::StrCat(rank)) != missing.end();
}

void ExpectNoHarm(const Endings& endings) {
  ExpectNothingWrong(endings);
  for (const Outcome& outcome : endings.ranks) EXPECT_TRUE(outcome.status.ok()) << Text(endings);
}

void ExpectDeathOf(Rank victim, const Endings& endings) {
  ExpectNothingWrong(endings);
  EXPECT_LT(endings.took, kInTime) << Text(endings);
  if (endings.events.empty()) return ExpectNoHarm(endings);
  const std::string died = absl::StrCat("rank ", victim, " died");
  for (Rank rank = 0; rank < static_cast<Rank>(endings.ranks.size()); ++rank) {
    const absl::Status& status = endings.ranks[rank].status;
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "rank " << rank << " " << Text(endings);
    EXPECT_TRUE(absl::StrContains(status.message(), died)) << "rank " << rank << " " << Text(endings);
  }
}

void ExpectLoss(const FaultyWorld& world, const Endings& endings) {
  ExpectNothingWrong(endings);
  EXPECT_LT(endings.took, world.timeout + kInTime) << Text(endings);
  for (const FaultEvent& event : endings.events) {
    EXPECT_FALSE(endings.ranks[event.to].status.ok())
        << "a message never came to rank " << event.to << " " << Text(endings);
  }
  for (Rank rank = 0; rank < world.size; ++rank) {
    const absl::Status& status = endings.ranks[rank].status;
    if (status.ok()) continue;
    if (absl::IsUnavailable(status)) {
      EXPECT_TRUE(absl::StrContains(status.message(), "rank ")) << Text(endings);
      continue;
    }
    // send and recv: the sender's next message with the same tag came in place of the lost one.
    if (const auto lengths = LengthsIn(status); lengths && BefellMessageOf(lengths->sender, endings)) continue;
    Rank waiter = -1;
    const Rank named = RankWaitedFor(status, &waiter);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << "rank " << rank << " " << Text(endings);
    EXPECT_TRUE(named >= 0 && named < world.size && named != waiter) << "rank " << rank << " " << Text(endings);
  }
}

void ExpectTruncation(const Endings& endings) {
  ExpectNothingWrong(endings);
  EXPECT_LT(endings.took, kInTime) << Text(endings);
  if (endings.events.empty()) return ExpectNoHarm(endings);
  for (const FaultEvent& event : endings.events) {
    EXPECT_FALSE(endings.ranks[event.to].status.ok()) << "rank " << event.to << " " << Text(endings);
  }
  for (const Outcome& outcome : endings.ranks) {
    if (outcome.status.ok()) continue;
    const std::optional<Lengths> lengths = LengthsIn(outcome.status);
    EXPECT_TRUE(lengths.has_value()) << Text(endings);
    if (!lengths) continue;
    EXPECT_TRUE(BefellMessageOf(lengths->sender, endings)) << Text(endings);
    EXPECT_LT(lengths->holds, lengths->expected) << Text(endings);
  }
}

}  // namespace tutti
