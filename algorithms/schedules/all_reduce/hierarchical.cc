// All-reduce, hierarchical: for several nodes with equally many ranks each, of which every rank carries its share of
// the wire.
//
// N nodes of L ranks (node_grid.h). The buffer of S bytes is cut into stages. In a stage every rank copies its input to
// mapped scratch and reduces the chunk of its own place from the inputs of all ranks of its node. The N ranks that have
// the same place on their nodes all-reduce that chunk around a ring of messages (ring_steps.h). Then every rank reads
// the other chunks from the ranks of its node. While the messages of a stage travel, the node works on the next stages
// (grid_stages.h).
//
// Every element is summed by one rank last, which sends the result to all, so all ranks end with the same bits.
// Messages per rank and stage: 2(N-1). Bytes sent by a rank between nodes: 2·(N-1)/N·S/L (16-bit sums, averages and
// products: 3·(N-1)/N·S/L, since partials are fp32); by a node, what one rank for each node would send. Bytes read from
// the ranks of the node: 2·(L-1)/L·S.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/grid_stages.h"
#include "tutti/schedules/partials.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  const GridPlace own(b);
  const int places = own.grid.places();
  const int nodes = own.grid.nodes();
  const DType partial = PartialType(b);
  const Stages stages = StagesOfMessages(b, partial, b.in().count(), places * nodes, places + nodes);
  const std::int64_t longest = CacheLineChunk(b.in().dtype, stages.length(), places, 0).count;
  const TwoSlots inputs(b, partial, stages.length());
  const TwoSlots sums(b, partial, longest);  // of the node
  const TwoSlots results(b, b.out().dtype, longest);
  Slots arrivals(b, ChunkOf(longest, nodes, 0).count);
  const auto chunk_of = [&](std::int64_t stage, int place) {
    return CacheLineChunk(b.in().dtype, stages[stage].count, places, place);
  };
  const auto place_in = [&](const Ref& buffer, std::int64_t stage, int place) {
    const Range chunk = chunk_of(stage, place);
    return buffer.Elements(stages[stage].begin + chunk.begin, chunk.count);
  };
  const auto slot_of = [&](std::int64_t stage, int place) {
    const Range chunk = chunk_of(stage, place);
    return inputs[stage].Elements(chunk.begin, chunk.count);
  };

  const auto fill = [&](std::int64_t stage) {
    for (const auto& [place, rank] : own.neighbours) b.Copy(slot_of(stage, place), place_in(b.in(), stage, place));
    if (PartialsAreWider(b)) b.Copy(slot_of(stage, own.place), place_in(b.in(), stage, own.place));
  };
  const auto send = [&](std::int64_t stage) {
    const Ref mine = slot_of(stage, own.place);
    std::vector<Ref> srcs;
    for (const Rank rank : own.row) srcs.push_back(OnRank(b, rank, mine));
    if (!PartialsAreWider(b)) srcs[static_cast<std::size_t>(own.place)] = place_in(b.in(), stage, own.place);
    const Ref sum = sums[stage].Elements(0, mine.count());
    b.Reduce(sum, srcs, PartialOp(b.spec()));
    CollectiveSpec between = b.spec();
    between.count = sum.count();
    b.WithinGroup(own.column, between, sum, place_in(b.out(), stage, own.place), [&](PlanBuilder& part) {
      const std::vector<Ref> parts = ChunksOf(part.out(), part.size());
      RingReduceScatter(part, ChunksOf(part.in(), part.size()), parts[part.rank()], arrivals, arrivals);
      RingAllGather(part, parts);
    });
  };
  const auto result_of = [&](std::int64_t stage, int place) {
    return results[stage].Elements(0, chunk_of(stage, place).count);
  };
  const auto pass = [&](std::int64_t stage) {
    b.Copy(result_of(stage, own.place), place_in(b.out(), stage, own.place));
  };
  const auto read = [&](std::int64_t stage) {
    for (const auto& [place, rank] : own.neighbours) {
      b.Copy(place_in(b.out(), stage, place), result_of(stage, place).At(rank));
    }
  };
  RunStages(b, own, stages.number(), {inputs[0], inputs[1], results[0], results[1]}, {fill, send, pass, read});
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, hierarchical) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "hierarchical",
    .summary =
        "stage by stage, the ranks of a node reduce their chunks in mapped scratch, and each all-reduces its chunk "
        "with "
        "the ranks of the same place on the other nodes, around a ring of messages",
    .cost =
        "2(N-1) messages for each of S/(N·L segments) stages, or of up to 8 where these are more (messages of 16 KiB "
        "or more), 2·(N-1)/N·S/L bytes between nodes (N nodes of L ranks)",
    .supports = tutti::schedules::SupportsGrid,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
