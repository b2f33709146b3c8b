#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/check/checks.h"
#include "bindings/cli/traffic.h"
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

std::vector<std::int64_t> CountsOf(int size) { return {0, 1, size + 1, 97}; }

// Builds the plans of all ranks, and verifies them.
class Checked {
 public:
  // `what` names the case in an error.
  absl::Status Check(int ranks, const std::function<absl::StatusOr<Plan>(Rank)>& build, absl::string_view what) {
    std::vector<Plan> plans;
    plans.reserve(static_cast<std::size_t>(ranks));
    for (Rank rank = 0; rank < ranks; ++rank) {
      absl::StatusOr<Plan> plan = build(rank);
      if (absl::IsUnimplemented(plan.status())) {
        ++refused_;
        return absl::OkStatus();
      }
      if (!plan.ok()) return Wrong(what, plan.status());
      plans.push_back(*std::move(plan));
    }
    if (absl::Status verified = Verify(plans); !verified.ok()) return Wrong(what, verified);
    ++verified_;
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Report() const {
    if (verified_ == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("`supports` refuses all of the ", refused_, " cases that were tried"));
    }
    return absl::StrCat("the plans of ", verified_, " cases are right, in worlds of 1 to ", kRanksOfCheck, " ranks",
                        refused_ == 0 ? "" : absl::StrCat("; ", refused_, " cases were refused by `supports`"));
  }

 private:
  static absl::Status Wrong(absl::string_view what, const absl::Status& status) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": ", status.message()));
  }

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
  return checked.Report();
}

absl::StatusOr<std::string> CheckPlans(const Strategy& strategy) {
  constexpr int kMostRounds = 16;
  Checked checked;
  for (int size = 1; size <= kRanksOfCheck; ++size) {
    for (const World& world : WorldsOf(size)) {
      const auto participants = static_cast<int>(ParticipantsOf(strategy, size, world.options).size());
      const int rounds = std::min(RoundsOf(strategy, participants), kMostRounds);
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{97}, std::int64_t{4097}}) {
          for (int round = 0; round < rounds; ++round) {
            const auto build = [&](Rank rank) {
              return BuildPlan(strategy, dtype, count, rank, size, world.options, round);
            };
            const std::string what =
                absl::StrCat(size, " ranks ", world.text, ", a bucket of ", count, " ", Name(dtype), ", round ", round);
            if (absl::Status status = checked.Check(size, build, what); !status.ok()) return status;
          }
        }
      }
    }
  }
  return checked.Report();
}

}  // namespace tutti::cli
