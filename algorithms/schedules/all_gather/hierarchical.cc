// All-gather, hierarchical: for several nodes with equally many ranks each, of which every rank carries its share of
// the wire.
//
// N nodes of L ranks (node_grid.h), blocks of C bytes. In a stage every rank passes its block to the ranks of its node
// through mapped scratch, and the N ranks that have the same place on their nodes all-gather their blocks around a ring
// of messages (ring_steps.h). The blocks that arrive are passed to the ranks of the node through scratch, too. While
// the messages of a stage travel, the node works on other stages (grid_stages.h).
//
// Messages per rank and stage: N-1. Bytes sent by a rank between nodes: (N-1)·C. Bytes read from the ranks of the node:
// (L-1)·N·C.
#include "tutti/schedule.h"
#include "tutti/schedules/grid_stages.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const GridPlace own(b);
  const int nodes = own.grid.nodes();
  const DType dtype = b.in().dtype;
  const Stages stages = StagesOfMessages(b, dtype, block, 1, b.size());
  const SlotsOfParts mine(b, dtype, stages, 1);
  const SlotsOfParts arrived(b, dtype, stages, nodes);
  const auto block_of = [&](std::int64_t stage, int node, int place) {
    return stages.Of(stage, b.out(), own.grid.RankAt(node, place) * block);
  };

  const auto fill = [&](std::int64_t stage) { b.Copy(mine.Part(stage), stages.Of(stage, b.in())); };
  const auto send = [&](std::int64_t stage) {
    std::vector<Ref> blocks;
    blocks.reserve(own.column.size());
    for (int node = 0; node < nodes; ++node) blocks.push_back(block_of(stage, node, own.place));
    b.Copy(blocks[static_cast<std::size_t>(own.node)], stages.Of(stage, b.in()));
    CollectiveSpec between = b.spec();
    between.count = stages[stage].count;
    between.in_place = false;
    b.WithinGroup(own.column, between, stages.Of(stage, b.in()), b.out().Elements(0, nodes * between.count),
                  [&](PlanBuilder& part) { RingAllGather(part, blocks); });
    for (const auto& [place, rank] : own.neighbours) {
      b.Copy(block_of(stage, own.node, place), mine.Part(stage).At(rank));
    }
  };
  const auto pass = [&](std::int64_t stage) {
    for (int node = 0; node < nodes; ++node) {
      if (node != own.node) b.Copy(arrived.Part(stage, node), block_of(stage, node, own.place));
    }
  };
  const auto read = [&](std::int64_t stage) {
    for (int node = 0; node < nodes; ++node) {
      for (const auto& [place, rank] : own.neighbours) {
        if (node != own.node) b.Copy(block_of(stage, node, place), arrived.Part(stage, node).At(rank));
      }
    }
  };
  std::vector<Ref> slots = mine.All();
  for (const Ref& slot : arrived.All()) slots.push_back(slot);
  RunStages(b, own, stages.number(), slots, {fill, send, pass, read});
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, hierarchical) = {
    .collective = tutti::Collective::kAllGather,
    .name = "hierarchical",
    .summary =
        "stage by stage, the ranks of the same place on all nodes pass their blocks around a ring of messages, and the "
        "ranks of a node what has arrived through mapped scratch",
    .cost =
        "N-1 messages for each of C/segment stages, or of up to 8 where these are more (messages of 16 KiB or more), "
        "(N-1)·C bytes between nodes (N nodes, C: one block)",
    .supports = tutti::schedules::SupportsGrid,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
