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
#include "tutti/schedule.h"

namespace tutti {

// Verifies the plans of all ranks together, whatever they cost; of a Send or Recv, those of the two ranks that take
// part. FailedPrecondition names the plan and the first fault; errors of `plan_of` are passed on. `own` is the plan of
// the rank that asks.
absl::Status VerifyPlansOfAllRanks(const Plan& own, PlanOfRank plan_of);

// The options that plans depend on, as text.
std::string KeyOf(const PlanOptions& options);

// Remembers which plans are right, 16,384 sets of them, so that hardly a set of plans is verified twice in a process.
// The choice of plans to verify does not depend on the rank that asks, so all ranks of a communicator refuse a wrong
// plan, or no rank does. Thread-safe.
class PlanVerifier {
 public:
  // The values of TUTTI_VERIFY: all plans but those beyond the limits below, all plans, or none.
  enum class Mode : std::uint8_t { kAuto, kAlways, kNever };

  // The plans of all ranks of one call, with more steps than this together, are run unverified in Mode::kAuto. The
  // verifier takes less than a second for so many steps.
  static constexpr std::size_t kMaxSteps = 200'000;
  // The plans of a schedule or a strategy are run unverified in Mode::kAuto, too, once a communicator has made this
  // many calls of different kinds by it.
  static constexpr std::size_t kMaxKinds = 1000;

  explicit PlanVerifier(Mode mode) : mode_(mode) {}
  // The verifier of this process, with the mode that TUTTI_VERIFY gives; a forked child has one of its own.
  static PlanVerifier& OfProcess();

  bool verifies() const { return mode_ != Mode::kNever; }

  // A set of plans, one per rank.
  struct Kind {
    // The schedule or strategy that made the plans. Plans that are not verified are reported once for each maker.
    absl::string_view maker;
    std::string call;  // everything else that the plans depend on
    // Whether all ranks call in place. Both forms count as one kind: a rank that makes a call of the one may verify the
    // other, too.
    bool in_place = false;
  };
  // The kinds of calls that one communicator has made, by maker: up to kMaxKinds of each.
  using KindsMade = absl::flat_hash_map<std::string, absl::flat_hash_set<std::string>>;
  // OK when the plans of the call have been verified, now or before, or need not be verified: where the plans are
  // beyond the limits, rank 0 says so on standard error, once for each maker. Errors are those of
  // VerifyPlansOfAllRanks. Only this class touches `made`.
  absl::Status Check(const Kind& kind, const Plan& own, PlanOfRank plan_of, KindsMade& made);

 private:
  // Verifies the plans; in Mode::kAuto only if they have at most kMaxSteps steps together.
  absl::Status Verify(const Kind& kind, const Plan& own, PlanOfRank plan_of);
  void ReportUnverified(const Kind& kind, const Plan& own, absl::string_view reason);
  void Forget(const std::string& call);

  const Mode mode_;
  Mutex mutex_;
  Condition changed_;
  // Results by Kind::call and Kind::in_place; nullopt while a thread verifies the plans of that call.
  absl::flat_hash_map<std::string, std::optional<absl::Status>> results_ TUTTI_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> reported_ TUTTI_GUARDED_BY(mutex_);  // makers whose unverified plans were reported
};

}  // namespace tutti

#endif  // TUTTI_COMM_PLAN_VERIFIER_H_
