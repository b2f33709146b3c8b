// All-to-all, hierarchical: for several nodes with equally many ranks each, of which every rank carries its share of
// the wire.
//
// N nodes of L ranks (node_grid.h), blocks of C bytes. In a stage every rank copies its blocks for the other ranks of
// its node, and for the ranks of their places on other nodes, to mapped scratch. From there every rank gathers, for
// each other node, the blocks of its whole node for the rank of its own place there, and sends these L blocks to that
// rank as one message. While the messages of a stage travel, the node works on the next stage (grid_stages.h).
//
// Messages per rank and stage: N-1, in place of the (N-1)·L of a schedule of messages alone. Bytes sent by a rank
// between nodes: (N-1)·L·C. Bytes read from the ranks of the node: (L-1)·N·C.
#include "tutti/schedule.h"
#include "tutti/schedules/grid_stages.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t block = b.spec().count;
  if (block == 0) return;
  const GridPlace own(b);
  const int places = own.grid.places();
  const int nodes = own.grid.nodes();
  const DType dtype = b.in().dtype;
  const Stages stages = StagesOfMessages(b, dtype, block, 1, b.size());
  const SlotsOfParts given(b, dtype, stages, places * nodes);
  const TwoSlots outgoing(b, dtype, stages.length() * b.size());
  const TwoSlots incoming(b, dtype, stages.length() * b.size());
  const auto block_of = [&](const Ref& buffer, std::int64_t stage, int node, int place) {
    return stages.Of(stage, buffer, own.grid.RankAt(node, place) * block);
  };
  // The block that a rank gives to the rank of its node at `place`, for the rank of that place on node `node`.
  const auto gift = [&](std::int64_t stage, int node, int place) { return given.Part(stage, place * nodes + node); };
  // The message to, or from, the rank of this place on node `node`: a part for each rank of the sender's node.
  const auto message = [&](const TwoSlots& slots, std::int64_t stage, int node) {
    return slots[stage].Elements(node * places * stages.length(), places * stages[stage].count);
  };
  const auto part = [&](const Ref& whole, std::int64_t stage, int place) {
    return whole.Elements(place * stages[stage].count, stages[stage].count);
  };

  const auto fill = [&](std::int64_t stage) {
    for (const auto& [place, rank] : own.neighbours) {
      for (int node = 0; node < nodes; ++node) b.Copy(gift(stage, node, place), block_of(b.in(), stage, node, place));
    }
  };
  const auto send = [&](std::int64_t stage) {
    for (int distance = 1; distance < nodes; ++distance) {
      const int to = OnRing(own.node + distance, nodes);
      const Ref out = message(outgoing, stage, to);
      b.Copy(part(out, stage, own.place), block_of(b.in(), stage, to, own.place));
      for (const auto& [place, rank] : own.neighbours) {
        b.Copy(part(out, stage, place), gift(stage, to, own.place).At(rank));
      }
      b.Send(own.column[static_cast<std::size_t>(to)], out);
    }
    b.Copy(block_of(b.out(), stage, own.node, own.place), block_of(b.in(), stage, own.node, own.place));
    for (const auto& [place, rank] : own.neighbours) {
      b.Copy(block_of(b.out(), stage, own.node, place), gift(stage, own.node, own.place).At(rank));
    }
    for (int distance = 1; distance < nodes; ++distance) {
      const int from = OnRing(own.node - distance, nodes);
      const Ref in = message(incoming, stage, from);
      b.Recv(own.column[static_cast<std::size_t>(from)], in);
      for (int place = 0; place < places; ++place) {
        b.Copy(block_of(b.out(), stage, from, place), part(in, stage, place));
      }
    }
  };
  RunStages(b, own, stages.number(), given.All(), fill, send);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all, hierarchical) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "hierarchical",
    .summary =
        "stage by stage, every rank gathers the blocks of its node for a rank of the same place on another node from "
        "mapped scratch, and sends these blocks as one message",
    .cost =
        "N-1 messages for each of L·C/segment parts, or of up to 8 where these are more (with 16 KiB or more of a "
        "block), (N-1)·L·C bytes between nodes (N nodes of L ranks, C: one block)",
    .supports = tutti::schedules::SupportsGrid,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
