// All-to-all of blocks of any size, staged: for buffers that no peer can map, through slots in scratch that peers read.
//
// Short blocks are exchanged first (see ShortBlocks). Then, in every stage, each rank copies a part of its block for
// every other rank to its slot, meets the ranks with which it exchanges anything in this stage or a later one, and
// reads its own parts from their slots. How many stages two ranks need follows from the blocks between the two, whose
// lengths both know; the length of a part follows from the size of the world, and a rank's (k+1)-th signal belongs to
// stage k. So a rank that needs fewer stages than its peers ends its call earlier. The rest of a block that is longer
// than MostStages parts is sent as a message.
//
// With n ranks, the longest block of a rank being of C bytes, and k = n·C / (2 segments) stages, at most MostStages:
// k+1 rounds of signals, and a message for each block that is longer than MostStages parts. Bytes read from peers and
// copied to slots: all blocks but the rank's own, without the rests that are sent.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "algorithms/schedules/all_to_all_v/short_blocks.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"
#include "tutti/schedules/stages.h"

namespace tutti::schedules {
namespace {

// Blocks, each cut in two: a beginning, which passes through slots, and a rest, which is sent as a message. This rank's
// own block is all rest, and is copied; of short blocks, which have been exchanged, nothing is left.
struct Cut {
  std::vector<Ref> staged;
  std::vector<Ref> rests;
};
Cut CutAfter(std::int64_t most, const std::vector<Ref>& blocks, Rank own, const ShortBlocks& short_blocks) {
  Cut cut;
  for (Rank rank = 0; rank < static_cast<Rank>(blocks.size()); ++rank) {
    const Ref& block = blocks[rank];
    const std::int64_t left = rank != own && short_blocks.Has(block) ? 0 : block.count();
    const std::int64_t staged = rank == own ? 0 : std::min(left, most);
    cut.staged.push_back(block.Elements(0, staged));
    cut.rests.push_back(block.Elements(staged, left - staged));
  }
  return cut;
}

void Build(PlanBuilder& b) {
  const std::vector<Ref> leaving = PackedBlocks(b.in(), b.spec().send_counts);
  const std::vector<Ref> arriving = PackedBlocks(b.out(), b.spec().recv_counts);
  if (b.size() == 1) return ExchangePairwise(b, leaving, arriving);
  const ShortBlocks short_blocks(b);
  short_blocks.Exchange(b, leaving, arriving);

  const DType dtype = b.in().dtype;
  const std::int64_t part = PartLength(b, dtype, b.size());
  const auto cut = [&](const std::vector<Ref>& blocks) {
    return CutAfter(part * MostStages(b.size(), b.size()), blocks, b.rank(), short_blocks);
  };
  const Cut out = cut(leaving);
  const Cut in = cut(arriving);
  std::vector<Rank> peers;  // the nearest successor first
  for (int i = 1; i < b.size(); ++i) peers.push_back((b.rank() + i) % b.size());
  const auto stages_with = [&](Rank peer) {
    return Stages(std::max(out.staged[peer].count(), in.staged[peer].count()), part).number();
  };
  std::int64_t number = 0;
  for (const Rank peer : peers) number = std::max(number, stages_with(peer));
  const TwoSlots slots(b, dtype, number == 0 ? 0 : part * b.size());
  // Where the stage's part of `block`, which is meant for rank `to`, lies in the scratch of the block's sender.
  const auto place_of = [&](std::int64_t stage, std::int64_t count, Rank to) {
    return slots[stage].Elements(to * part, count);
  };

  // A slot's part for a peer is filled for this stage only while the peer needs further stages: another peer, which
  // `meet` no longer waits for, may still read its part of the same slot.
  const auto fill = [&](std::int64_t stage) {
    for (const Rank peer : peers) {
      const Stages stages(out.staged[peer].count(), part);
      if (stage >= stages.number()) continue;
      b.Copy(place_of(stage, stages[stage].count, peer), stages.Of(stage, out.staged[peer]));
    }
  };
  const auto meet = [&](std::int64_t stage) {
    std::erase_if(peers, [&](Rank peer) { return stage >= stages_with(peer); });
    b.Signal();
    b.WaitFor(peers);
  };
  const auto read = [&](std::int64_t stage) {
    for (const Rank peer : peers) {
      const Stages stages(in.staged[peer].count(), part);
      if (stage >= stages.number()) continue;
      b.Copy(stages.Of(stage, in.staged[peer]), place_of(stage, stages[stage].count, b.rank()).At(peer));
    }
  };
  if (number > 0) FillThenRead(number, fill, meet, read);
  ExchangePairwise(b, out.rests, in.rests);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all_v, staged) = {
    .collective = tutti::Collective::kAllToAllV,
    .name = "staged",
    .summary = "stage by stage, every rank copies a part of every block to mapped scratch and reads what is for it",
    .cost =
        "1 + n·C/(2 segments) rounds of signals (C: the longest block), at most 257 (fewer from 14 ranks on), "
        "the rest by messages",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
    .competes_for_mapped_buffers = false,
};
