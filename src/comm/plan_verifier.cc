#include "comm/plan_verifier.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/config.h"
#include "base/fork.h"
#include "tutti/cost_model.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

// The most sets of plans that a process remembers. Beyond this number the process forgets the sets that are right, and
// verifies each again when it comes.
constexpr std::size_t kMaxRemembered = 16'384;

PlanVerifier::Mode ModeOf(const absl::StatusOr<Config>& config) {
  if (!config.ok() || config->verify == "auto") return PlanVerifier::Mode::kAuto;
  return config->verify == "always" ? PlanVerifier::Mode::kAlways : PlanVerifier::Mode::kNever;
}

std::vector<Rank> RanksThatTakePart(const Plan& own) {
  const CollectiveSpec& spec = own.spec;
  if (IsPointToPoint(spec.collective)) {
    const Rank peer = spec.root;
    if (peer < 0 || peer >= own.size || peer == own.rank) return {own.rank};
    return {std::min(own.rank, peer), std::max(own.rank, peer)};
  }
  std::vector<Rank> ranks(static_cast<std::size_t>(own.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The plans of all ranks; fewer once they have more than `most_steps` together. The order in which plans are made does
// not depend on the rank that asks.
absl::StatusOr<std::vector<Plan>> MakePlans(const Plan& own, PlanOfRank plan_of, std::size_t most_steps,
                                            std::size_t& steps) {
  std::vector<Plan> plans;
  for (const Rank rank : RanksThatTakePart(own)) {
    absl::StatusOr<Plan> plan = rank == own.rank ? own : plan_of(rank);
    if (!plan.ok()) return plan.status();
    steps += plan->steps.size();
    if (steps > most_steps) return plans;
    plans.push_back(*std::move(plan));
  }
  return plans;
}

// The model of the machine as text, exact to the last bit, because plans contain schedules that were chosen by it.
std::string KeyOf(const CostModel& model) {
  std::string key;
  for (const LinkModel& link : {model.within_node, model.between_nodes}) {
    absl::StrAppendFormat(&key, "%a %a %a %a %d %a ", link.latency_s, link.bytes_per_s, link.message_s,
                          link.copy_bytes_per_s, link.announced_bytes, link.announced_bytes_per_s);
  }
  absl::StrAppendFormat(&key, "%a %a %a %a %a %a %d %d", model.step_s, model.signal_s, model.memory_bytes_per_s,
                        model.copy_bytes_per_s, model.scratch_bytes_per_s, model.switch_s, model.cores_per_node,
                        model.ranks_per_node);
  for (const NativeModel& native : {model.native_within_node, model.native_between_nodes}) {
    absl::StrAppendFormat(&key, " %a %a", native.latency_s, native.bytes_per_s);
  }
  return key;
}

std::string KeyOf(const NativeCollectives& native) {
  const auto append_collective = [](std::string* out, Collective collective) {
    absl::StrAppend(out, Name(collective));
  };
  const auto append_reduction = [](std::string* out, const NativeCollectives::Reduction& reduction) {
    absl::StrAppend(out, Name(reduction.dtype), " ", Name(reduction.op));
  };
  return absl::StrCat(absl::StrJoin(native.collectives, ",", append_collective), ":",
                      absl::StrJoin(native.reductions, ",", append_reduction));
}

absl::Status VerifyPlans(const Plan& own, const std::vector<Plan>& plans) {
  absl::Status verified = tutti::Verify(plans);
  if (verified.ok()) return verified;
  return absl::Status(verified.code(), absl::StrCat("plan ", own.name, " of ", ToString(own.spec), " on ", own.size,
                                                    " ranks is wrong and does not run: ", verified.message()));
}

}  // namespace

std::string KeyOf(const PlanOptions& options) {
  return absl::StrCat("segment_bytes=", options.segment_bytes, options.peers_mapped ? " mapped" : "",
                      options.reads_processes ? " reading" : "", options.private_buffers ? " private" : "",
                      " native=", KeyOf(options.native), " nodes=", absl::StrJoin(options.nodes, ","), " on ",
                      options.cost_model == nullptr ? "" : KeyOf(*options.cost_model));
}

absl::Status VerifyPlansOfAllRanks(const Plan& own, PlanOfRank plan_of) {
  std::size_t steps = 0;
  const absl::StatusOr<std::vector<Plan>> plans = MakePlans(own, plan_of, static_cast<std::size_t>(-1), steps);
  return plans.ok() ? VerifyPlans(own, *plans) : plans.status();
}

PlanVerifier& PlanVerifier::OfProcess() {
  struct Made {
    const MakerProcess maker;
    PlanVerifier verifier{ModeOf(LoadConfig())};
  };
  static std::atomic<Made*> last = new Made;
  Made* made = last.load();
  if (made->maker.is_this()) return made->verifier;
  // In a forked child no thread of the parent goes on to verify, or lets go of the lock.
  auto own = std::make_unique<Made>();
  if (!last.compare_exchange_strong(made, own.get())) return made->verifier;  // another thread of the child was first
  LeaveToParent(std::unique_ptr<Made>(made));
  return own.release()->verifier;
}

void PlanVerifier::ReportUnverified(const Kind& kind, const Plan& own, absl::string_view reason) {
  if (own.rank != 0) return;
  {
    const MutexLock lock(mutex_);
    if (!reported_.insert(std::string(kind.maker)).second) return;
  }
  const std::string line = absl::StrCat("tutti: plans of ", kind.maker, " for ", ToString(own.spec), " on ", own.size,
                                        " ranks run unverified: ", reason, ". TUTTI_VERIFY=always verifies all.\n");
  std::fputs(line.c_str(), stderr);
}

absl::Status PlanVerifier::Verify(const Kind& kind, const Plan& own, PlanOfRank plan_of) {
  if (mode_ == Mode::kAlways) return VerifyPlansOfAllRanks(own, plan_of);
  std::size_t steps = 0;
  const absl::StatusOr<std::vector<Plan>> plans = MakePlans(own, plan_of, kMaxSteps, steps);
  if (!plans.ok()) return plans.status();
  if (steps <= kMaxSteps) return VerifyPlans(own, *plans);
  ReportUnverified(kind, own, absl::StrCat("they have more than ", kMaxSteps, " steps together"));
  return absl::OkStatus();
}

void PlanVerifier::Forget(const std::string& call) {
  {
    const MutexLock lock(mutex_);
    results_.erase(call);
  }
  changed_.NotifyAll();
}

absl::Status PlanVerifier::Check(const Kind& kind, const Plan& own, PlanOfRank plan_of, KindsMade& made) {
  if (!verifies()) return absl::OkStatus();
  const std::string call = absl::StrCat(kind.call, kind.in_place ? " in_place" : "");
  bool too_many = false;
  {
    const MutexLock lock(mutex_);
    // Kinds are counted whether the result is known or not, because ranks may know different results.
    absl::flat_hash_set<std::string>& kinds = made[kind.maker];
    too_many = mode_ == Mode::kAuto && kinds.size() >= kMaxKinds && !kinds.contains(kind.call);
    if (!too_many && mode_ == Mode::kAuto) kinds.insert(kind.call);
    if (!too_many) {
      // A rank that is a thread of this process may be verifying the same plans.
      changed_.Wait(mutex_, [&]() TUTTI_REQUIRES(mutex_) {
        const auto found = results_.find(call);
        return found == results_.end() || found->second.has_value();
      });
      if (const auto found = results_.find(call); found != results_.end()) return *found->second;
      if (results_.size() >= kMaxRemembered) {
        absl::erase_if(results_, [](const auto& entry) { return entry.second.has_value() && entry.second->ok(); });
      }
      results_[call] = std::nullopt;
    }
  }
  if (too_many) {
    ReportUnverified(kind, own, absl::StrCat(kMaxKinds, " kinds of calls of a communicator have been verified"));
    return absl::OkStatus();
  }
  // Forgets the call where `plan_of`, which may be the user's, throws: other threads would wait for its result for
  // ever.
  absl::Cleanup give_up = [&] { Forget(call); };
  absl::Status verified = Verify(kind, own, plan_of);
  std::move(give_up).Cancel();
  {
    const MutexLock lock(mutex_);
    results_[call] = verified;
  }
  changed_.NotifyAll();
  return verified;
}

}  // namespace tutti
