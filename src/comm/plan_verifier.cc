#include "comm/plan_verifier.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

// The most sets of plans that a process remembers. After that it forgets all, and verifies again what it meets.
constexpr std::size_t kMostRemembered = 16'384;

PlanVerifier::Mode ModeOf(const absl::StatusOr<Config>& config) {
  if (!config.ok() || config->verify == "auto") return PlanVerifier::Mode::kAuto;
  return config->verify == "always" ? PlanVerifier::Mode::kAlways : PlanVerifier::Mode::kNever;
}

std::vector<Rank> RanksThatTakePart(const Plan& own) {
  const CollectiveSpec& spec = own.spec;
  if (spec.collective == Collective::kSend || spec.collective == Collective::kRecv) {
    const Rank peer = spec.root;
    if (peer < 0 || peer >= own.size || peer == own.rank) return {own.rank};
    return {std::min(own.rank, peer), std::max(own.rank, peer)};
  }
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < own.size; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace

absl::Status VerifyPlansOfAllRanks(const Plan& own, PlanOfRank plan_of) {
  std::vector<Plan> plans;
  for (const Rank rank : RanksThatTakePart(own)) {
    absl::StatusOr<Plan> plan = rank == own.rank ? own : plan_of(rank);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  const absl::Status verified = Verify(plans);
  if (verified.ok()) return verified;
  return absl::Status(verified.code(), absl::StrCat("plan ", own.name, " of ", ToString(own.spec), " on ", own.size,
                                                    " ranks is wrong and does not run: ", verified.message()));
}

PlanVerifier& PlanVerifier::OfProcess() {
  static PlanVerifier verifier(ModeOf(LoadConfig()));
  return verifier;
}

std::string PlanVerifier::ReasonNotTo(const Maker& maker, std::size_t steps) const {
  if (mode_ == Mode::kAlways) return "";
  if (steps > kMostSteps) return absl::StrCat("they have ", steps, " steps, more than ", kMostSteps);
  if (maker.kinds >= kMostKinds) return absl::StrCat("those of ", kMostKinds, " kinds of calls have been verified");
  return "";
}

absl::Status PlanVerifier::Check(const Kind& kind, const Plan& own, PlanOfRank plan_of) {
  if (mode_ == Mode::kNever) return absl::OkStatus();
  {
    const MutexLock lock(mutex_);
    // A rank that is a thread of this process may be verifying the same plans.
    changed_.Wait(mutex_, [&]() TUTTI_REQUIRES(mutex_) {
      const auto found = results_.find(kind.call);
      return found == results_.end() || found->second.has_value();
    });
    if (const auto found = results_.find(kind.call); found != results_.end()) return *found->second;
    Maker& maker = makers_[kind.maker];
    const std::string reason = ReasonNotTo(maker, own.steps.size() * static_cast<std::size_t>(own.size));
    if (!reason.empty()) {
      if (own.rank == 0 && !std::exchange(maker.reported, true)) {
        const std::string line =
            absl::StrCat("tutti: plans of ", kind.maker, " for ", ToString(own.spec), " on ", own.size,
                         " ranks run unverified: ", reason, ". TUTTI_VERIFY=always verifies all.\n");
        std::fputs(line.c_str(), stderr);
      }
      return absl::OkStatus();
    }
    ++maker.kinds;
    if (results_.size() >= kMostRemembered) {
      absl::erase_if(results_, [](const auto& entry) { return entry.second.has_value(); });
    }
    results_[kind.call] = std::nullopt;
  }
  const absl::Status verified = VerifyPlansOfAllRanks(own, plan_of);
  {
    const MutexLock lock(mutex_);
    results_[kind.call] = verified;
  }
  changed_.NotifyAll();
  return verified;
}

}  // namespace tutti
