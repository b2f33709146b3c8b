// Schedules over a grid of ranks (node_grid.h), stage after stage: in each stage the ranks of a node pass their parts
// to each other through scratch, and the ranks of a column exchange messages. While the messages of a stage travel, the
// nodes work on the next one.
#ifndef TUTTI_SCHEDULES_GRID_STAGES_H_
#define TUTTI_SCHEDULES_GRID_STAGES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/node_grid.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {

// The cut of `count` elements into stages, where a message carries one of `parts` equal parts of a stage. Messages are
// as long as a segment, or shorter where there would be few stages: the wire is idle in the first stage until a node
// has done its part, and the node in the last stage until the wire has. Messages are longer where there would be more
// stages than plans may have (MostStages); `peers` is the number of ranks with which a rank has steps in a stage.
inline Stages StagesOfMessages(const PlanBuilder& b, DType dtype, std::int64_t count, int parts, int peers) {
  constexpr std::int64_t kStages = 8;
  constexpr std::int64_t kShortMessage = 16 << 10;
  const std::int64_t longest = ElementsPerSegment(b, dtype) * parts;
  const std::int64_t shortest = std::min(kShortMessage / SizeOf(dtype) * parts, longest);
  const std::int64_t wanted = std::clamp(DivideRoundingUp(count, kStages), shortest, longest);
  const std::int64_t most = MostStages(b.size(), peers);
  return Stages(count, std::min(count, std::max(wanted, DivideRoundingUp(count, most))));
}

// The stages of a rank that are under way at once: while the messages of one stage travel, the next one is prepared.
inline constexpr std::int64_t kStagesAhead = 2;

// The meetings of a rank with its neighbours. A meeting follows only the steps that touch `slots`, which are all slots
// that neighbours read: the messages of earlier stages go on.
class NodeMeetings {
 public:
  NodeMeetings(PlanBuilder& b, const GridPlace& own, absl::Span<const Ref> slots)
      : builder_(b), shared_(slots.begin(), slots.end()) {
    for (const Neighbour& neighbour : own.neighbours) {
      peers_.push_back(neighbour.rank);
      for (const Ref& slot : slots) shared_.push_back(slot.At(neighbour.rank));
    }
  }

  void Meet() {
    builder_.SignalAfter(shared_);
    builder_.WaitFor(peers_);
  }

 private:
  PlanBuilder& builder_;
  std::vector<Ref> shared_;
  std::vector<Rank> peers_;
};

// In each of `number` stages the rank fills slots for its neighbours, the neighbours meet, and the rank `sends`: it
// reads the slots of its neighbours and exchanges messages. A slot is filled again two stages later, after a meeting at
// which no neighbour reads it any more.
inline void RunStages(PlanBuilder& b, const GridPlace& own, std::int64_t number, absl::Span<const Ref> slots,
                      absl::FunctionRef<void(std::int64_t)> fill, absl::FunctionRef<void(std::int64_t)> send) {
  NodeMeetings meetings(b, own, slots);
  for (std::int64_t stage = 0; stage < number; ++stage) {
    fill(stage);
    meetings.Meet();
    send(stage);
  }
}

// RunStages for schedules whose messages bring something for the neighbours: `kStagesAhead` stages after it has sent,
// the rank `passes` the results of the stage to its neighbours by slots of their own, the neighbours meet again, and
// each `reads` them. The rank meets its neighbours once for both.
struct GridSteps {
  absl::FunctionRef<void(std::int64_t)> fill;
  absl::FunctionRef<void(std::int64_t)> send;
  absl::FunctionRef<void(std::int64_t)> pass;
  absl::FunctionRef<void(std::int64_t)> read;
};

inline void RunStages(PlanBuilder& b, const GridPlace& own, std::int64_t number, absl::Span<const Ref> slots,
                      const GridSteps& steps) {
  NodeMeetings meetings(b, own, slots);
  for (std::int64_t i = 0; i < number + kStagesAhead; ++i) {
    const std::int64_t ended = i - kStagesAhead;
    if (i >= number && ended < 0) continue;
    if (i < number) steps.fill(i);
    if (ended >= 0) steps.pass(ended);
    meetings.Meet();
    if (i < number) steps.send(i);
    if (ended >= 0) steps.read(ended);
  }
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_GRID_STAGES_H_
