// Verifies plans before their first run, in bounded time.
#ifndef TUTTI_COMM_PLAN_VERIFIER_H_
#define TUTTI_COMM_PLAN_VERIFIER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti {

// Verifies the plans of all ranks together, whatever they cost; of a Send or Recv, those of the two ranks that take
// part. FailedPrecondition names the plan and the first fault; errors of `plan_of` are passed on. `own` is the plan of
// the rank that asks.
absl::Status VerifyPlansOfAllRanks(const Plan& own, PlanOfRank plan_of);

// Remembers which plans are right, so that each set of plans is verified once in a process. Thread-safe.
class PlanVerifier {
 public:
  // The values of TUTTI_VERIFY: all plans but those beyond the limits below, all plans, or none.
  enum class Mode : std::uint8_t { kAuto, kAlways, kNever };

  // The plans of all ranks of one call, with more steps than this together, are run unverified in Mode::kAuto. The
  // verifier takes less than a second for so many steps.
  static constexpr std::size_t kMostSteps = 200'000;
  // So are the plans of a schedule or a strategy of which so many calls of different kinds have been verified.
  static constexpr int kMostKinds = 1000;

  explicit PlanVerifier(Mode mode) : mode_(mode) {}
  // With the mode that TUTTI_VERIFY gives.
  static PlanVerifier& OfProcess();

  // A set of plans, one per rank.
  struct Kind {
    absl::string_view maker;  // the schedule or the strategy: what is not verified is reported once for each
    std::string call;         // everything that the plans depend on
  };
  // OK when the plans of the call have been verified, now or before, or need not be: then rank 0 says once for each
  // maker, on standard error, that plans were not verified. Otherwise as VerifyPlansOfAllRanks.
  absl::Status Check(const Kind& kind, const Plan& own, PlanOfRank plan_of);

 private:
  struct Maker {
    int kinds = 0;
    bool reported = false;
  };

  // Why the plans are not to be verified; empty: they are.
  std::string ReasonNotTo(const Maker& maker, std::size_t steps) const;

  const Mode mode_;
  Mutex mutex_;
  Condition changed_;
  // By call; nullopt while a thread verifies it.
  absl::flat_hash_map<std::string, std::optional<absl::Status>> results_ TUTTI_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Maker> makers_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_COMM_PLAN_VERIFIER_H_
