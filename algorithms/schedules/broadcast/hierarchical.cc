// Broadcast, hierarchical: for several nodes with equally many ranks each, of which every rank carries its share of the
// wire.
//
// N nodes of L ranks (node_grid.h). The buffer of S bytes is cut into stages. In a stage the root copies its buffer to
// mapped scratch, and the other ranks of its node read the copy. The N ranks that have the same place on their nodes
// pass the chunk of that place down a chain of messages, from the root's node on. Then every rank of the other nodes
// reads the other chunks from the ranks of its node. While the messages of a stage travel, the node works on other
// stages (grid_stages.h).
//
// Messages per rank and stage: one received and one sent, at most. Bytes sent by a rank between nodes: S/L. A stage
// takes N-1 messages to reach the last node.
#include "tutti/schedule.h"
#include "tutti/schedules/grid_stages.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  if (count == 0) return;
  const GridPlace own(b);
  const int places = own.grid.places();
  const int nodes = own.grid.nodes();
  const Rank root = b.spec().root;
  const bool is_root = b.rank() == root;
  const int first = own.grid.NodeOf(root);
  const int hops = (own.node - first + nodes) % nodes;  // from the root's node to this rank's
  const DType dtype = b.spec().dtype;
  const Stages stages = StagesOfMessages(b, dtype, count, places, places + nodes);
  const SlotsOfParts given(b, dtype, stages, 1);  // by the root
  const std::int64_t longest = CacheLineChunk(dtype, stages.length(), places, 0).count;
  const TwoSlots chunks(b, dtype, longest);
  const Ref& data = is_root ? b.in() : b.out();
  const auto chunk_of = [&](std::int64_t stage, int place) {
    return CacheLineChunk(dtype, stages[stage].count, places, place);
  };
  const auto place_in = [&](std::int64_t stage, int place) {
    const Range chunk = chunk_of(stage, place);
    return data.Elements(stages[stage].begin + chunk.begin, chunk.count);
  };
  const auto slot_of = [&](std::int64_t stage, int place) {
    return chunks[stage].Elements(0, chunk_of(stage, place).count);
  };

  const auto fill = [&](std::int64_t stage) {
    if (is_root) b.Copy(given.Part(stage), stages.Of(stage, b.in()));
  };
  const auto send = [&](std::int64_t stage) {
    const Ref mine = place_in(stage, own.place);
    if (hops == 0 && !is_root) b.Copy(stages.Of(stage, b.out()), given.Part(stage).At(root));
    const auto at = [&](int hop) { return own.column[static_cast<std::size_t>((first + hop) % nodes)]; };
    if (hops > 0) b.Recv(at(hops - 1), mine);
    if (hops < nodes - 1) b.Send(at(hops + 1), mine);
  };
  const auto pass = [&](std::int64_t stage) {
    if (hops > 0) b.Copy(slot_of(stage, own.place), place_in(stage, own.place));
  };
  const auto read = [&](std::int64_t stage) {
    if (hops == 0) return;
    for (const auto& [place, rank] : own.neighbours) {
      b.Copy(place_in(stage, place), slot_of(stage, place).At(rank));
    }
  };
  std::vector<Ref> slots = given.All();
  for (const std::int64_t turn : {0, 1}) slots.push_back(chunks[turn]);
  RunStages(b, own, stages.number(), slots, {fill, send, pass, read});
  if (is_root) b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, hierarchical) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "hierarchical",
    .summary =
        "stage by stage, the ranks of the root's node send a chunk each down a chain of the ranks of the same place, "
        "and "
        "the ranks of a node pass their chunks to each other through mapped scratch",
    .cost =
        "S/(L segments) messages, or up to 8 where these are more (of 16 KiB or more), S/L bytes between nodes (N "
        "nodes of L ranks), N-1 messages one after the other",
    .supports = tutti::schedules::SupportsGrid,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
