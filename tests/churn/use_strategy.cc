// Strategies of a worker: made, used for some steps, saved and loaded, switched and dropped.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/churn/replica.h"
#include "tests/churn/worker.h"

namespace tutti::churn {
namespace {

// The states of all ranks, in rank order. Collective.
absl::StatusOr<std::vector<std::string>> GatherStates(Communicator& on, const std::string& mine) {
  const auto length = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(on.size()));
  if (absl::Status status = on.AllGather(&length, lengths.data(), 1, DType::kI64).Wait(); !status.ok()) return status;
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = mine;
  padded.resize(static_cast<std::size_t>(longest));
  std::string all(static_cast<std::size_t>(longest * on.size()), '\0');
  if (absl::Status status = on.AllGather(padded.data(), all.data(), longest, DType::kU8).Wait(); !status.ok()) {
    return status;
  }
  std::vector<std::string> states;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    states.push_back(all.substr(rank * static_cast<std::size_t>(longest), static_cast<std::size_t>(lengths[rank])));
  }
  return states;
}

}  // namespace

absl::Status Worker::Train(Replica& replica, int steps, bool of_async) {
  for (int step = 0; step < steps; ++step) {
    BeginWait(absl::StrCat("step ", step, " of ", replica.synchronizer().strategy()));
    if (absl::Status status = replica.Step(); !status.ok()) return status;
    if (const std::string wrong = replica.WrongNumbers(); !wrong.empty()) {
      complain_(absl::StrCat("wrong result: rank ", rank_, ", ", wrong));
      break;
    }
  }
  BeginWait("Flush");
  // Between two steps weights may differ between ranks; Flush gives all ranks the average.
  if (absl::Status status = replica.synchronizer().Flush(); !status.ok()) return status;
  if (of_async) replica.synchronizer().Pause();
  BeginWait("CheckState");
  const absl::Status equal = replica.CheckEqual();
  if (absl::IsDataLoss(equal)) complain_(absl::StrCat("wrong result: rank ", rank_, ": ", equal.ToString()));
  return equal;
}

absl::Status Worker::UseStrategy(Communicator& on) {
  ++strategies_;
  const TriedStrategy& strategy = choices_.Of(TriedStrategies());
  const bool of_async = absl::StartsWith(strategy.name, "async");
  const int salt = choices_.Below(static_cast<int>(kPeriod));
  const int steps = choices_.Between(1, 4);
  const bool saves = !of_async && choices_.OneIn(3);
  const bool loads_in_part = choices_.OneIn(2);
  const bool allocates_after = choices_.OneIn(2);
  std::vector<std::string> states;
  {
    BeginWait(absl::StrCat("making ", strategy.name));
    absl::StatusOr<std::unique_ptr<Replica>> replica = Replica::Make(on, strategy, salt);
    if (!replica.ok()) return replica.status();
    if (absl::Status status = Train(**replica, steps, of_async); !status.ok()) return status;
    if (saves) {
      BeginWait("gathering states");
      absl::StatusOr<std::vector<std::string>> gathered = GatherStates(on, (*replica)->synchronizer().SaveState());
      if (!gathered.ok()) return gathered.status();
      states = *std::move(gathered);
    }
  }
  // Peers may not touch memory of the arena that the dropped strategy has given back.
  if (allocates_after) {
    absl::StatusOr<Memory> memory = Memory::Make(on, 50'000, /*in_arena=*/true);
    if (!memory.ok()) return memory.status();
    memory->Poison();
    resting_.push_back(*std::move(memory));
  }
  if (!saves) return absl::OkStatus();
  if (!loads_in_part || on.size() == 1) return Resume(on, strategy, salt, states);
  // A group without the last rank loads the states of all ranks.
  BeginWait("Split");
  absl::StatusOr<std::unique_ptr<Communicator>> part = on.Split(on.rank() + 1 < on.size() ? 0 : -1, on.rank());
  if (!part.ok()) return part.status();
  if (*part == nullptr) return absl::OkStatus();
  const std::uint64_t members = (std::uint64_t{1} << (on.size() - 1)) - 1;
  return WithMembers(Resume(**part, strategy, salt, states), members, true);
}

absl::Status Worker::Resume(Communicator& on, const TriedStrategy& strategy, int salt,
                            const std::vector<std::string>& states) {
  BeginWait(absl::StrCat("loading states of ", strategy.name));
  absl::StatusOr<std::unique_ptr<Replica>> replica = Replica::Make(on, strategy, salt);
  if (!replica.ok()) return replica.status();
  const bool same_size = static_cast<int>(states.size()) == on.size();
  const absl::Status loaded = (*replica)->synchronizer().LoadState(
      same_size ? absl::MakeConstSpan(states).subspan(static_cast<std::size_t>(on.rank()), 1) : states);
  if (!loaded.ok()) return loaded;
  return Train(**replica, 1, /*of_async=*/false);
}

}  // namespace tutti::churn
