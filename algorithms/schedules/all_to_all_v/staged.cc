// All-to-all of blocks of any size, staged: through slots in scratch that peers read. A rank knows the lengths of its
// own blocks alone, so a rank cannot find its block in the input of a peer, but finds its part of the peer's slot.
//
// In every stage each rank copies a part of its block for every other rank to its slot, meets the ranks with which it
// exchanges anything in this stage or a later one, and reads its own parts from their slots. How many stages two ranks
// need follows from the blocks between the two, whose lengths both know; the length of a part follows from the size of
// the world, and a rank's k-th signal belongs to stage k. So a rank that needs fewer stages than its peers ends its
// call earlier. The rest of a block that is longer than MostStages parts is sent as a message.
//
// With n ranks, the longest block of a rank being of C bytes, and k = n·C / (2 segments) stages, at most MostStages: k
// rounds of signals, at least one, and a message for each block that is longer than MostStages parts. Bytes read from
// peers and copied to slots: all blocks but the rank's own, without the rests that are sent.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "algorithms/schedules/chunks.h"
#include "algorithms/schedules/pairwise_exchange.h"
#include "algorithms/schedules/stages.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

// The bytes of the slot for short blocks: a call with short blocks only needs no other slot, and this one is so small
// that the memory of the call's lane holds it.
constexpr std::int64_t kShortBytes = 32 << 10;

// Blocks, each cut in two: a beginning, which passes through slots, and a rest, which is sent as a message. This rank's
// own block is all rest, and is copied.
struct Cut {
  std::vector<Ref> staged;
  std::vector<Ref> rests;
};
Cut CutAfter(std::int64_t most, const std::vector<Ref>& blocks, Rank own) {
  Cut cut;
  for (Rank rank = 0; rank < static_cast<Rank>(blocks.size()); ++rank) {
    const Ref& block = blocks[rank];
    const std::int64_t staged = rank == own ? 0 : std::min(block.count(), most);
    cut.staged.push_back(block.Elements(0, staged));
    cut.rests.push_back(block.Elements(staged, block.count() - staged));
  }
  return cut;
}

void Build(PlanBuilder& b) {
  const std::vector<Ref> leaving = PackedBlocks(b.in(), b.spec().send_counts);
  const std::vector<Ref> arriving = PackedBlocks(b.out(), b.spec().recv_counts);
  if (b.size() == 1) return ExchangePairwise(b, leaving, arriving);
  const DType dtype = b.in().dtype;
  const std::int64_t part = PartLength(b, dtype, b.size());
  const Cut out = CutAfter(part * MostStages(b.size()), leaving, b.rank());
  const Cut in = CutAfter(part * MostStages(b.size()), arriving, b.rank());

  const std::int64_t short_part = std::min(part, kShortBytes / b.size() / 64 * 64 / SizeOf(dtype));
  const auto is_short = [&](const Ref& block) { return block.count() <= short_part; };
  const bool all_short = std::all_of(out.staged.begin(), out.staged.end(), is_short) &&
                         std::all_of(in.staged.begin(), in.staged.end(), is_short);
  const Ref short_slot = b.Scratch(dtype, short_part * b.size());
  const TwoSlots slots(b, dtype, all_short ? 0 : part * b.size());
  // Where the stage's part of `block`, which is meant for rank `to`, lies in the scratch of the block's sender.
  const auto place_of = [&](const Ref& block, std::int64_t stage, std::int64_t count, Rank to) {
    if (is_short(block)) return short_slot.Elements(to * short_part, count);
    return slots[stage].Elements(to * part, count);
  };

  std::vector<Rank> peers;  // the nearest successor first
  for (int i = 1; i < b.size(); ++i) peers.push_back((b.rank() + i) % b.size());
  const auto stages_with = [&](Rank peer) {
    return Stages(std::max(out.staged[peer].count(), in.staged[peer].count()), part).number();
  };
  std::int64_t number = 1;  // a rank that exchanges nothing signals once, as part of the call
  for (const Rank peer : peers) number = std::max(number, stages_with(peer));

  // A slot's part for a peer is filled for this stage only while the peer needs further stages: another peer, which
  // `meet` no longer waits for, may still read its part of the same slot.
  const auto fill = [&](std::int64_t stage) {
    for (const Rank peer : peers) {
      const Stages stages(out.staged[peer].count(), part);
      if (stage >= stages.number()) continue;
      b.Copy(place_of(out.staged[peer], stage, stages[stage].count, peer), stages.Of(stage, out.staged[peer]));
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
      b.Copy(stages.Of(stage, in.staged[peer]),
             place_of(in.staged[peer], stage, stages[stage].count, b.rank()).At(peer));
    }
  };
  FillThenRead(number, fill, meet, read);
  ExchangePairwise(b, out.rests, in.rests);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all_v, staged) = {
    .collective = tutti::Collective::kAllToAllV,
    .name = "staged",
    .summary = "stage by stage, every rank copies a part of every block to mapped scratch and reads what is for it",
    .cost =
        "n·C/(2 segments) rounds of signals (C: the longest block), at most 256 (fewer from 14 ranks on), "
        "the rest by messages",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
