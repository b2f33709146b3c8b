// Verifies plans before their first run, in bounded time.
#ifndef TUTTI_COMM_PLAN_VERIFIER_H_
#define TUTTI_COMM_PLAN_VERIFIER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "tutti/plan.h"

namespace tutti {

// Verifies the plans of all ranks together, whatever they cost; of a Send or Recv, those of the two ranks that take
// part. FailedPrecondition names the plan and the first fault; errors of `plan_of` are passed on. `own` is the plan of
// the rank that asks.
absl::Status VerifyPlansOfAllRanks(const Plan& own, PlanOfRank plan_of);

// Remembers which plans are right, so that each set of plans is verified once in a process. What is verified does not
// depend on the rank that asks, so all ranks of a communicator refuse a wrong plan, or none. Thread-safe.
class PlanVerifier {
 public:
  // The values of TUTTI_VERIFY: all plans but those beyond the limits below, all plans, or none.
  enum class Mode : std::uint8_t { kAuto, kAlways, kNever };

  // The plans of all ranks of one call, with more steps than this together, are run unverified in Mode::kAuto. The
  // verifier takes less than a second for so many steps.
  static constexpr std::size_t kMostSteps = 200'000;
  // So are the plans of a schedule or a strategy of which a communicator has made so many calls of different kinds.
  static constexpr int kMostKinds = 1000;

  explicit PlanVerifier(Mode mode) : mode_(mode) {}
  // With the mode that TUTTI_VERIFY gives.
  static PlanVerifier& OfProcess();

  // A set of plans, one per rank.
  struct Kind {
    absl::string_view maker;  // the schedule or the strategy: what is not verified is reported once for each
    std::string call;         // everything that the plans depend on
  };
  // The number of kinds of calls that one communicator has made, by maker.
  using KindsMade = absl::flat_hash_map<std::string, int>;
  // OK when the plans of the call have been verified, now or before, or need not be: where they are beyond the limits,
  // rank 0 says so on standard error, once for each maker. Otherwise as VerifyPlansOfAllRanks. Only this class touches
  // `made`.
  absl::Status Check(const Kind& kind, const Plan& own, PlanOfRank plan_of, KindsMade& made);

 private:
  // Verifies the plans; in Mode::kAuto only if they have at most kMostSteps steps together.
  absl::Status Verify(const Kind& kind, const Plan& own, PlanOfRank plan_of);
  void ReportUnverified(const Kind& kind, const Plan& own, absl::string_view reason);
  void Forget(const std::string& call);

  const Mode mode_;
  Mutex mutex_;
  Condition changed_;
  // By call; nullopt while a thread verifies it.
  absl::flat_hash_map<std::string, std::optional<absl::Status>> results_ TUTTI_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> reported_ TUTTI_GUARDED_BY(mutex_);  // makers
};

}  // namespace tutti

#endif  // TUTTI_COMM_PLAN_VERIFIER_H_
