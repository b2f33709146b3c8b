// One thread of a rank: its communicator, its decisions, and the memory of its calls.
#ifndef TUTTI_TESTS_CHURN_WORKER_H_
#define TUTTI_TESTS_CHURN_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "tests/churn/choices.h"
#include "tests/churn/memory.h"
#include "tests/churn/replica.h"
#include "tests/churn/round.h"
#include "tutti/communicator.h"

namespace tutti::churn {

// A function that takes the text of something that must never happen, such as a wrong sum. Any thread may call it.
using Complain = std::function<void(const std::string& what)>;

class Worker {
 public:
  // `thread` is part of the seed of decisions that are equal on all ranks; `rank` is the rank in the world.
  Worker(const Round& round, int world, Rank rank, int thread, Communicator& communicator, Complain complain);

  // Does one thing with the communicator, equal on all ranks: calls, groups, or a strategy. Returns the error of the
  // communicator that has failed.
  absl::Status DoNext();

  // Drops the groups that were kept for later, and the memory of calls that have ended.
  void DropWhatIsKept();

  // The parts of DoNext. `on` is the communicator, or a group of it.
  absl::Status MakeCalls(Communicator& on, int calls);
  absl::Status MakeGroups();
  absl::Status WithMembers(const absl::Status& error, std::uint64_t chosen, bool inside) const;
  absl::Status UseStrategy(Communicator& on);

  // The number of groups and strategies made so far, equal on all ranks.
  int splits() const { return splits_; }
  int strategies() const { return strategies_; }

  // Complains when somebody has written to memory of calls that have ended.
  void CheckEndedCalls();

  // The time when the last wait for peers began. Any thread may ask.
  std::int64_t waits_since_ns() const { return waits_since_ns_; }
  // What the thread is doing, for the report of a hang. Any thread may ask.
  std::string doing() const;

 private:
  struct PlannedCall;
  absl::StatusOr<PlannedCall> Plan(Communicator& on);
  absl::StatusOr<std::vector<PlannedCall>> PlanExchange(Communicator& on);
  Work Start(Communicator& on, PlannedCall& call);
  void CheckResult(Communicator& on, PlannedCall& call);
  absl::Status Wait(PlannedCall& call);
  void BeginWait(absl::string_view what);
  // Makes some steps, and checks that replicas are then equal where they must be.
  absl::Status Train(Replica& replica, int steps, bool of_async);
  // Goes on from the states that all ranks of some world have saved.
  absl::Status Resume(Communicator& on, const TriedStrategy& strategy, int salt,
                      const std::vector<std::string>& states);
  // Checks the poisoned memory of earlier calls, which have ended, and lets it go; poisons the memory of `calls` and
  // keeps it for the next check.
  void Rest(std::vector<PlannedCall> calls);

  const Round round_;
  const Rank rank_;
  Communicator& communicator_;
  const Complain complain_;
  Choices choices_;  // equal on all ranks
  Choices own_;      // decisions of this rank alone
  std::atomic<std::int64_t> waits_since_ns_;
  mutable Mutex mutex_;
  std::string doing_ TUTTI_GUARDED_BY(mutex_) = "begins";
  int splits_ = 0;
  int strategies_ = 0;
  std::vector<Memory> resting_;
  std::vector<std::unique_ptr<Communicator>> groups_;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_WORKER_H_
