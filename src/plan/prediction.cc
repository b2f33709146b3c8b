#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/player.h"
#include "plan/representative.h"
#include "tutti/cost_model.h"
#include "tutti/rounding.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

// The bytes of a block of all_to_all_v, for a prediction: no rank knows all counts, so blocks are taken to be equal.
constexpr std::int64_t kUnknownBlockBytes = 64 << 10;
// The longest buffer of the call is cut into at most this many segments, which are enough to show which steps overlap.
constexpr std::int64_t kMaxSegments = 16;
// No further plan is built once the plans built so far have about this many steps: as many as the plans of 8 ranks
// have, of a ring or of recursive halving and doubling, however long their buffers are.
constexpr std::size_t kMaxSteps = 600;
// The limit of steps for calls with a root, whose ranks do different things, so that none stands for another: as many
// as a chain of 32 ranks has.
constexpr std::size_t kMaxStepsWithRoot = 25'000;
// A schedule looks at every rank of the world when it writes a plan: in large worlds, few plans are built.
constexpr std::size_t kMaxPlannedRanks = 1 << 10;  // plans times ranks of the world

bool IsPlayedInPart(int size) { return static_cast<std::size_t>(size) * size > kMaxPlannedRanks; }

}  // namespace

CollectiveSpec Representative(const CollectiveSpec& spec, int size) {
  CollectiveSpec same = spec;
  // In-place calls are predicted as others are: some ranks may be in place and others not, and all must choose alike.
  same.in_place = false;
  if (spec.root == kAnySource) same.root = 0;
  // With fewer elements than ranks, ranks without a chunk do less than the other ranks: the plans of the former could
  // not stand for those of the latter.
  const bool is_cut = spec.collective == Collective::kAllReduce || spec.collective == Collective::kBroadcast ||
                      spec.collective == Collective::kReduce;
  if (is_cut && spec.count > 0 && IsPlayedInPart(size)) same.count = std::max<std::int64_t>(spec.count, size);
  // A world or a type that does not exist has no blocks: whoever validates the spec refuses it.
  if (spec.collective == Collective::kAllToAllV && size > 0 && SizeOf(spec.dtype) > 0) {
    const auto blocks = static_cast<std::size_t>(size);
    same.send_counts.assign(blocks, kUnknownBlockBytes / SizeOf(spec.dtype));
    same.recv_counts = same.send_counts;
  }
  return same;
}

namespace {

// The rank whose plan comes first: the root, which has most to do where there is one, or the rank with the first chunk,
// which is the longest.
Rank FirstRank(const CollectiveSpec& spec, int size) {
  if (IsPointToPoint(spec.collective)) return spec.root == 0 && size > 1 ? 1 : 0;
  return HasRoot(spec.collective) ? spec.root : 0;
}

PlanOptions Coarse(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  PlanOptions coarse = options;
  const Rank first = FirstRank(spec, size);
  const std::int64_t longest = std::max(InputCount(spec, first, size), OutputCount(spec, first, size));
  const std::int64_t least = DivideRoundingUp(longest, kMaxSegments) * SizeOf(AccumulatorOf(spec.dtype));
  coarse.segment_bytes = std::max(options.segment_bytes, least);
  return coarse;
}

// The ranks in the order in which their plans are wanted: the first rank; the rank before the first, which is the
// deepest of a tree; the peers from which a planned rank receives before it has sent anything, because the plan of that
// rank does not show what such peers do; then the other peers.
class Wanted {
 public:
  Wanted(int size, Rank first) : seen_(static_cast<std::size_t>(size)) {
    Add(speakers_, first);
    Add(speakers_, (first + size - 1) % size);
  }

  // Sets `rank` to the next rank; false when every rank that the plans mention has been taken.
  bool Next(Rank& rank) {
    for (auto* const queue : {&speakers_, &others_}) {
      while (queue->next < queue->ranks.size()) {
        rank = queue->ranks[queue->next++];
        if (std::exchange(seen_[rank].taken, true)) continue;
        return true;
      }
    }
    return false;
  }

  void Heed(const Plan& plan) {
    bool has_spoken = false;
    for (const Step& step : plan.steps) {
      has_spoken = has_spoken || step.kind == StepKind::kSend;
      if (step.kind == StepKind::kRecv && !has_spoken) Add(speakers_, step.peer);
      if (step.peer != kSelf) Add(others_, step.peer);
    }
  }

 private:
  struct Queue {
    std::vector<Rank> ranks;
    std::size_t next = 0;
  };
  struct Seen {
    bool speaker = false;
    bool other = false;
    bool taken = false;
  };

  void Add(Queue& queue, Rank rank) {
    bool& known = &queue == &speakers_ ? seen_[rank].speaker : seen_[rank].other;
    if (!std::exchange(known, true)) queue.ranks.push_back(rank);
  }

  std::vector<Seen> seen_;
  Queue speakers_;
  Queue others_;
};

}  // namespace

absl::StatusOr<double> PredictSeconds(const Schedule& schedule, const CollectiveSpec& spec, int size,
                                      const PlanOptions& options) {
  const CollectiveSpec call = Representative(spec, size);
  if (absl::Status valid = Validate(call, FirstRank(call, size), size); !valid.ok()) return valid;
  if (absl::Status valid = options.Check(size); !valid.ok()) return valid;
  const bool message = IsPointToPoint(call.collective);
  const PlanOptions coarse = Coarse(call, size, options);
  const std::size_t most_steps = HasRoot(call.collective) ? kMaxStepsWithRoot : kMaxSteps;
  std::vector<Plan> plans;
  std::size_t steps = 0;
  Wanted wanted(size, FirstRank(call, size));
  Rank rank = 0;
  while (wanted.Next(rank)) {
    absl::StatusOr<Plan> plan = BuildPlan(schedule, call, rank, size, coarse);
    if (!plan.ok()) return plan.status();
    steps += plan->steps.size();
    wanted.Heed(*plan);
    plans.push_back(*std::move(plan));
    const std::size_t next = plans.size() + 1;
    // One plan more would have about as many steps as the plans built so far have on average.
    if (message || steps / plans.size() * next > most_steps || next * size > kMaxPlannedRanks) break;
  }
  // Steps that could begin at the same time are taken in the order of their ranks.
  std::sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) { return a.rank < b.rank; });
  const double seconds = Play(plans, options.nodes, options.model());
  if (absl::Status known = CheckPredicted(seconds); !known.ok()) return known;
  return seconds;
}

}  // namespace tutti
