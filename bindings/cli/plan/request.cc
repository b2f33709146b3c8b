#include "bindings/cli/plan/request.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/suggestion.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti::cli {
namespace {

absl::StatusOr<CollectiveSpec> SpecOf(const PlanRequest& request, Collective collective, Rank rank) {
  TrafficOptions options = request.traffic;
  if (collective == Collective::kSend || collective == Collective::kRecv) options.root = 1 - rank;
  absl::StatusOr<Traffic> traffic = MakeTraffic(collective, options, request.bytes, request.count, rank, request.ranks);
  if (!traffic.ok()) return traffic.status();
  return std::move(traffic->spec);
}

absl::StatusOr<PlanFamily> ResolveCollective(const PlanRequest& request, Collective collective,
                                             absl::string_view schedule_name) {
  const absl::StatusOr<CollectiveSpec> spec = SpecOf(request, collective, 0);
  if (!spec.ok()) return spec.status();
  PlanFamily family{.explanation = "", .choice = "", .ranks = request.ranks, .build = nullptr};
  const Schedule* schedule = nullptr;
  if (schedule_name.empty()) {
    const absl::StatusOr<Selection> selection = SelectSchedule(*spec, request.ranks, request.options);
    if (!selection.ok()) return selection.status();
    schedule = selection->schedule;
    family.explanation = absl::StrCat("chosen: ", schedule->name, "\n", selection->reason());
    const auto competing = std::count_if(selection->candidates.begin(), selection->candidates.end(),
                                         [](const Candidate& candidate) { return candidate.refusal.ok(); });
    family.choice =
        absl::StrCat("schedule ", schedule->name, ", predicted to be the fastest of the ", competing, " that compete");
  } else {
    const absl::StatusOr<const Schedule*> found = FindSchedule(collective, schedule_name);
    if (!found.ok()) return found.status();
    schedule = *found;
    family.choice = absl::StrCat("schedule ", schedule->name, ", as asked for");
  }
  family.build = [request, collective, schedule](Rank rank) -> absl::StatusOr<Plan> {
    const absl::StatusOr<CollectiveSpec> own = SpecOf(request, collective, rank);
    if (!own.ok()) return own.status();
    return BuildPlan(*schedule, *own, rank, request.ranks, request.options);
  };
  return family;
}

// A message has two ends: rank 0 sends, rank 1 receives.
absl::StatusOr<PlanFamily> ResolveMessage(const PlanRequest& request, absl::string_view schedule_name) {
  if (request.ranks < 2) return absl::InvalidArgumentError("a message needs --ranks of at least 2");
  const absl::StatusOr<PlanFamily> sender = ResolveCollective(request, Collective::kSend, schedule_name);
  if (!sender.ok()) return sender.status();
  const absl::StatusOr<PlanFamily> receiver = ResolveCollective(request, Collective::kRecv, schedule_name);
  if (!receiver.ok()) return receiver.status();
  return PlanFamily{.explanation = sender->explanation,
                    .choice = sender->choice,
                    .ranks = 2,
                    .build = [send = sender->build, recv = receiver->build](Rank rank) {
                      return rank == 0 ? send(rank) : recv(rank);
                    }};
}

// The error that the strategy exchanges nothing in `step`, with a later step in which it does exchange.
absl::Status ExchangesNothing(const Strategy& strategy, const RoundOfStep& round_of, std::int64_t step) {
  constexpr std::int64_t kStepsToTry = 100'000;
  std::int64_t next = step + 1;
  while (next < step + kStepsToTry && round_of(next) == kNoExchange) ++next;
  const bool found = next < step + kStepsToTry;
  return absl::InvalidArgumentError(
      absl::StrCat("step ", step, " exchanges nothing with ", strategy.ToString(),
                   found ? absl::StrCat("; the next step that does is --step ", next)
                         : absl::StrCat(", nor does one of the ", kStepsToTry - 1, " steps after it")));
}

absl::StatusOr<PlanFamily> ResolveStrategy(const PlanRequest& request) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy(request.spec);
  if (!strategy.ok()) return strategy.status();
  if (!request.for_collectives.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(request.for_collectives, ", "), ": ",
                                                   strategy->algorithm->name,
                                                   " decides that itself; leave it out, or name a collective"));
  }
  const DType dtype = request.traffic.dtype;
  const std::int64_t count = request.count >= 0 ? request.count : request.bytes / SizeOf(dtype);
  const auto participants = static_cast<int>(ParticipantsOf(*strategy, request.ranks, request.options).size());
  const RoundOfStep round_of = RoundOf(*strategy, participants);
  const int round = round_of(request.step);
  if (round == kNoExchange) return ExchangesNothing(*strategy, round_of, request.step);
  const int rounds = RoundsOf(*strategy, participants);
  const std::string which = rounds == 1 ? "" : absl::StrCat("round ", round, " of 0…", rounds - 1);
  return PlanFamily{
      .explanation = absl::StrCat("strategy: ", strategy->ToString(), "\n", which, which.empty() ? "" : "\n"),
      .choice = absl::StrCat("strategy ", strategy->ToString(), which.empty() ? "" : ", ", which),
      .ranks = request.ranks,
      .build = [request, strategy = *strategy, dtype, count, round](Rank rank) {
        return BuildPlan(strategy, dtype, count, rank, request.ranks, request.options, round);
      }};
}

std::vector<std::string> NamesOfAll() {
  std::vector<std::string> names;
  names.reserve(kAllCollectives.size() + AllAlgorithms().size());
  for (Collective collective : kAllCollectives) names.emplace_back(Name(collective));
  for (const Algorithm* algorithm : AllAlgorithms()) names.emplace_back(algorithm->name);
  return names;
}

}  // namespace

absl::StatusOr<PlanFamily> Resolve(const PlanRequest& request) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(request.spec, absl::MaxSplits(':', 1));
  for (const Algorithm* algorithm : AllAlgorithms()) {
    if (algorithm->name == parts.first) return ResolveStrategy(request);
  }
  const absl::StatusOr<Collective> collective = ParseCollective(parts.first);
  if (!collective.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no collective or algorithm '", parts.first, "'", Suggestion(parts.first, NamesOfAll())));
  }
  if (absl::Status used = CheckFlags(*collective, request.for_collectives); !used.ok()) return used;
  if (request.step_given) {
    return absl::InvalidArgumentError(absl::StrCat("--step: ", Name(*collective),
                                                   " has the same plan in every step; leave --step out, or name a "
                                                   "strategy"));
  }
  if (*collective == Collective::kSend || *collective == Collective::kRecv) {
    return ResolveMessage(request, parts.second);
  }
  return ResolveCollective(request, *collective, parts.second);
}

absl::StatusOr<std::vector<Plan>> BuildAll(const PlanFamily& family) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < family.ranks; ++rank) {
    absl::StatusOr<Plan> plan = family.build(rank);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  return plans;
}

}  // namespace tutti::cli
