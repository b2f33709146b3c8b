#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/check/checks.h"
#include "bindings/cli/check/current_case.h"
#include "bindings/cli/traffic.h"
#include "tutti/print.h"
#include "tutti/verify.h"

namespace tutti::cli {
namespace {

// Where the ranks of a world lie, and how plans are cut: small segments, so that short buffers have several.
struct World {
  absl::string_view text;
  PlanOptions options;
};

std::vector<World> WorldsOf(int size) {
  std::vector<int> pairs;
  pairs.reserve(static_cast<std::size_t>(size));
  for (Rank rank = 0; rank < size; ++rank) pairs.push_back(rank / 2);
  std::vector<World> worlds = {{"in mapped memory", {.segment_bytes = 64, .peers_mapped = true}},
                               {"by messages", {.segment_bytes = 64, .peers_mapped = false}}};
  if (size > 2)
    worlds.push_back({"on nodes of two ranks", {.segment_bytes = 64, .peers_mapped = true, .nodes = pairs}});
  return worlds;
}

constexpr absl::string_view kCountsOfSchedules = "counts 0, 1, ranks + 1 and 97";
std::vector<std::int64_t> CountsOf(int size) { return {0, 1, size + 1, 97}; }

constexpr absl::string_view kCountsOfAlgorithms = "buckets of 0, 1, 97 and 4097 elements";
constexpr std::int64_t kBucketCounts[] = {0, 1, 97, 4097};

absl::Status Wrong(absl::string_view what, absl::string_view fault) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", fault));
}

std::string StepText(const Plan& plan, StepId id) {
  if (id >= plan.steps.size()) return "missing";
  const Step& step = plan.steps[id];
  return absl::StrCat(ToText(plan, step), step.num_deps == 0 ? "" : " after ", absl::StrJoin(plan.deps_of(step), " "));
}

// How two plans of one rank differ; empty: not at all.
std::string Difference(const Plan& one, const Plan& other) {
  const std::size_t steps = std::max(one.steps.size(), other.steps.size());
  for (StepId id = 0; id < steps; ++id) {
    const std::string first = StepText(one, id);
    const std::string second = StepText(other, id);
    if (first != second) return absl::StrCat("step ", id, " is first ", first, ", then ", second);
  }
  const auto same_state = [](const StateRange& a, const StateRange& b) {
    return a.name == b.name && a.kind == b.kind && a.of == b.of && a.range == b.range &&
           a.first_element == b.first_element && a.divisor == b.divisor;
  };
  const std::pair<absl::string_view, bool> fields[] = {
      {"steps", one.steps == other.steps && one.refs == other.refs && one.deps == other.deps},
      {"codecs", one.codecs == other.codecs},
      {"coefficients", one.coefficients == other.coefficients},
      {"groups of native steps", one.groups == other.groups},
      {"states", one.state_bytes == other.state_bytes && absl::c_equal(one.states, other.states, same_state)},
      {"bytes of scratch", one.scratch_bytes == other.scratch_bytes},
      {"bytes of input and output", one.in_bytes == other.in_bytes && one.out_bytes == other.out_bytes},
      {"mixing of weights", one.mixing == other.mixing && one.mixing_nodes == other.mixing_nodes}};
  for (const auto& [field, same] : fields) {
    if (!same) return absl::StrCat("their ", field, " differ");
  }
  return "";
}

// Builds the plans of all ranks, and verifies them.
class Checked {
 public:
  // `what` names the case in an error.
  absl::Status Check(int ranks, const std::function<absl::StatusOr<Plan>(Rank)>& build, absl::string_view what) {
    SetCurrentCase(what);
    std::vector<Plan> plans;
    plans.reserve(static_cast<std::size_t>(ranks));
    for (Rank rank = 0; rank < ranks; ++rank) {
      absl::StatusOr<Plan> plan = build(rank);
      if (absl::IsUnimplemented(plan.status())) {
        ++refused_;
        return absl::OkStatus();
      }
      if (!plan.ok()) return Wrong(what, plan.status().message());
      const absl::StatusOr<Plan> again = build(rank);
      if (!again.ok()) return Wrong(what, absl::StrCat("built a second time: ", again.status().message()));
      if (const std::string difference = Difference(*plan, *again); !difference.empty()) {
        return Wrong(what, absl::StrCat("Build gave two different plans for rank ", rank,
                                        ": it must be a pure function; ", difference));
      }
      plans.push_back(*std::move(plan));
    }
    if (absl::Status verified = Verify(plans); !verified.ok()) return Wrong(what, verified.message());
    ++verified_;
    return absl::OkStatus();
  }

  int verified() const { return verified_; }

  // `counts` says which ones were tried.
  absl::StatusOr<std::string> Report(absl::string_view counts) const {
    if (verified_ == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("`supports` refuses all of the ", refused_, " cases that were tried"));
    }
    return absl::StrCat("the plans of ", verified_, " cases are right, in worlds of 1 to ", kRanksOfCheck, " ranks, ",
                        counts, refused_ == 0 ? "" : absl::StrCat("; ", refused_, " cases were refused by `supports`"));
  }

 private:
  int verified_ = 0;
  int refused_ = 0;
};

// Types and operators whose plans differ: sums in place, sums that are rounded once, no rounding at all.
std::vector<TrafficOptions> TrafficOf(Collective collective, int size) {
  std::vector<TrafficOptions> all = {{.dtype = DType::kF32, .op = ReduceOp::kSum},
                                     {.dtype = DType::kBF16, .op = ReduceOp::kAvg},
                                     {.dtype = DType::kI32, .op = ReduceOp::kMax}};
  if (!Reduces(collective)) all.resize(1);
  std::vector<TrafficOptions> traffic;
  for (TrafficOptions options : all) {
    for (const bool in_place : {true, false}) {
      if (in_place && !HasInPlaceForm(collective)) continue;
      options.in_place = in_place;
      options.root = HasRoot(collective) ? size / 2 : 0;
      traffic.push_back(options);
    }
  }
  return traffic;
}

// Asks twice, of many steps, which round runs in them.
absl::Status CheckRoundsOfSteps(const Strategy& strategy, int participants, int rounds, absl::string_view where) {
  constexpr int kSteps = 300;
  std::vector<int> first;
  for (const bool again : {false, true}) {
    SetCurrentCase(absl::StrCat(where, ", round_of"));
    const RoundOfStep round_of = RoundOf(strategy, participants);
    for (int step = 0; step < kSteps; ++step) {
      SetCurrentCase(absl::StrCat(where, ", round_of step ", step));
      const int round = round_of(step);
      const std::string given = absl::StrCat("round_of gives round ", round, " in step ", step);
      if (round != kNoExchange && (round < 0 || round >= rounds)) {
        return Wrong(where, absl::StrCat(given, ", must be in 0…", rounds - 1, ", or kNoExchange"));
      }
      if (!again) {
        first.push_back(round);
      } else if (const int before = first[static_cast<std::size_t>(step)]; round != before) {
        return Wrong(where, absl::StrCat(given, ", and gave ", before, " before: it must be a pure function"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CheckPlans(const Schedule& schedule) {
  if (schedule.collective == Collective::kSend || schedule.collective == Collective::kRecv) {
    return absl::UnimplementedError(
        "send and recv are two schedules of one name; tutti plan send:NAME --verify checks them together");
  }
  Checked checked;
  for (int size = 1; size <= kRanksOfCheck; ++size) {
    for (const World& world : WorldsOf(size)) {
      for (const TrafficOptions& traffic : TrafficOf(schedule.collective, size)) {
        for (const std::int64_t count : CountsOf(size)) {
          const auto build = [&](Rank rank) -> absl::StatusOr<Plan> {
            const absl::StatusOr<Traffic> call =
                MakeTraffic(schedule.collective, traffic, /*bytes=*/0, count, rank, size);
            if (!call.ok()) return call.status();
            return BuildPlan(schedule, call->spec, rank, size, world.options);
          };
          const std::string what =
              absl::StrCat(size, " ranks ", world.text, ", count ", count, ", ", Name(traffic.dtype), ", ",
                           Name(traffic.op), traffic.in_place ? ", in place" : ", out of place");
          if (absl::Status status = checked.Check(size, build, what); !status.ok()) return status;
        }
      }
    }
  }
  return checked.Report(kCountsOfSchedules);
}

absl::StatusOr<std::string> CheckPlans(const Strategy& strategy) {
  constexpr int kMaxRounds = 16;
  Checked checked;
  for (int size = 1; size <= kRanksOfCheck; ++size) {
    for (const World& world : WorldsOf(size)) {
      const auto participants = static_cast<int>(ParticipantsOf(strategy, size, world.options).size());
      const std::string where = absl::StrCat(size, " ranks ", world.text);
      SetCurrentCase(absl::StrCat(where, ", rounds"));
      const int rounds = RoundsOf(strategy, participants);
      if (rounds < 1) return Wrong(where, absl::StrCat("rounds gives ", rounds, ", must give at least 1"));
      const int verified_before = checked.verified();
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const std::int64_t count : kBucketCounts) {
          for (int round = 0; round < std::min(rounds, kMaxRounds); ++round) {
            const auto build = [&](Rank rank) {
              return BuildPlan(strategy, dtype, count, rank, size, world.options, round);
            };
            const std::string what = absl::StrCat(where, ", a bucket of ", count, " ", Name(dtype), ", round ", round);
            if (absl::Status status = checked.Check(size, build, what); !status.ok()) return status;
          }
        }
      }
      if (checked.verified() == verified_before) continue;  // no training in such a world asks for a round
      if (absl::Status status = CheckRoundsOfSteps(strategy, participants, rounds, where); !status.ok()) return status;
    }
  }
  return checked.Report(kCountsOfAlgorithms);
}

}  // namespace tutti::cli
