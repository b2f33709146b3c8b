// Reduce-scatter, hierarchical: for several nodes with equally many ranks each, of which every rank carries its share
// of the wire.
//
// N nodes of L ranks (node_grid.h), blocks of C bytes. In a stage every rank copies its inputs for the other ranks of
// its node, and for the ranks of their places on other nodes, to mapped scratch, and adds up the inputs of its node for
// the N ranks of its own place. These ranks reduce-scatter the sums around a ring of messages (ring_steps.h). While the
// messages of a stage travel, the node works on the next stages (grid_stages.h).
//
// Messages per rank and stage: N-1. Bytes sent by a rank between nodes: (N-1)·C (16-bit sums, averages and products:
// twice as many, since partials are fp32). Bytes read from the ranks of the node: (L-1)·N·C.
#include "tutti/schedule.h"
#include "tutti/schedules/grid_stages.h"
#include "tutti/schedules/partials.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const GridPlace own(b);
  const int places = own.grid.places();
  const int nodes = own.grid.nodes();
  const DType partial = PartialType(b);
  const Stages stages = StagesOfMessages(b, partial, block, 1, b.size());
  const SlotsOfParts inputs(b, partial, stages, places * nodes);
  const SlotsOfParts sums(b, partial, stages, nodes);
  Slots arrivals(b, stages.length());
  const auto block_of = [&](std::int64_t stage, int node, int place) {
    return stages.Of(stage, b.in(), own.grid.RankAt(node, place) * block);
  };
  const auto slot_of = [&](std::int64_t stage, int node, int place) {
    return inputs.Part(stage, place * nodes + node);
  };

  const auto fill = [&](std::int64_t stage) {
    for (int node = 0; node < nodes; ++node) {
      for (const auto& [place, rank] : own.neighbours) {
        b.Copy(slot_of(stage, node, place), block_of(stage, node, place));
      }
      if (PartialsAreWider(b)) b.Copy(slot_of(stage, node, own.place), block_of(stage, node, own.place));
    }
  };
  const auto send = [&](std::int64_t stage) {
    std::vector<Ref> parts;
    for (int node = 0; node < nodes; ++node) {
      std::vector<Ref> srcs;
      for (const Rank rank : own.row) srcs.push_back(OnRank(b, rank, slot_of(stage, node, own.place)));
      if (!PartialsAreWider(b)) {
        srcs[static_cast<std::size_t>(own.place)] = block_of(stage, node, own.place);
      }
      parts.push_back(sums.Part(stage, node));
      b.Reduce(parts.back(), srcs, PartialOp(b.spec()));
    }
    const Ref result = stages.Of(stage, b.out());
    CollectiveSpec between = b.spec();
    between.count = result.count();
    between.in_place = false;
    const Ref all = sums.Part(stage, 0).Elements(0, nodes * result.count());
    b.WithinGroup(own.column, between, all, result,
                  [&](PlanBuilder& part) { RingReduceScatter(part, parts, result, arrivals, arrivals); });
  };
  RunStages(b, own, stages.number(), inputs.All(), fill, send);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, hierarchical) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "hierarchical",
    .summary =
        "stage by stage, the ranks of a node add up their inputs in mapped scratch, and each reduce-scatters its sums "
        "with the ranks of the same place on the other nodes, around a ring of messages",
    .cost =
        "N-1 messages for each of C/segment stages, or of up to 8 where these are more (messages of 16 KiB or more), "
        "(N-1)·C bytes between nodes (N nodes, C: one rank's output)",
    .supports = tutti::schedules::SupportsGrid,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
