// The steps of ranks in time, as a picture shows the steps: lanes, bars and arrows, without their places on the paper.
#ifndef TUTTI_BINDINGS_CLI_PLAN_TIMELINE_H_
#define TUTTI_BINDINGS_CLI_PLAN_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/cost_model.h"
#include "tutti/plan.h"

namespace tutti::cli {

// The share of a bar's time that the steps of one kind take; kWait: the rank waits for others.
struct BarShare {
  StepKind kind = StepKind::kWait;
  double part = 1;
};

// One step, or several that follow each other and are alike, or too short for bars of their own. Times are seconds from
// the common start.
struct Bar {
  double begin = 0;
  double end = 0;
  std::vector<BarShare> shares;     // in the order of the kinds; the parts sum to 1
  std::size_t steps = 0;            // 0: the rank only waits
  std::vector<std::string> labels;  // the longest first; a picture takes the first that it has room for
};

struct Lane {
  Rank rank = 0;
  int node = 0;
  std::vector<Bar> bars;  // one after the other
};

// A message, or several from one bar; or the signal for which a rank waited longest.
struct Arrow {
  bool signal = false;
  std::size_t from_lane = 0, to_lane = 0;
  double left = 0, taken = 0;  // the first: when it leaves, and when the receiver turns to it
  std::int64_t count = 1;
  std::int64_t bytes = 0;  // of all messages together
};

struct Timeline {
  double seconds = 0;  // until the last rank ends
  std::vector<Lane> lanes;
  std::vector<Arrow> arrows;
  std::vector<StepKind> kinds;     // those of the bars, each once, in their order
  bool mapped = false;             // whether a label says that a step touches memory of other ranks
  std::vector<std::string> notes;  // what is left out
};

// A picture has at most so many lanes; of a larger world it shows kLanesOfMany ranks. Bars and arrows, too, are so few
// that a reader finds a way through.
inline constexpr int kMaxLanes = 32;
inline constexpr int kLanesOfMany = 16;
inline constexpr int kMaxArrows = 400;

// The timeline of as many ranks as there are lanes, from `first` on or up to the last one, when the plans (of all
// ranks, or of some, in the order of ranks) run on the machine of `model`. `nodes` is the node of each rank; empty: all
// are on one node. Errors are those of TimesOf.
absl::StatusOr<Timeline> TimelineOf(absl::Span<const Plan> plans, const CostModel& model, absl::Span<const int> nodes,
                                    Rank first);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_TIMELINE_H_
