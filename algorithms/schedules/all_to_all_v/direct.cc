// All-to-all of blocks of any size, direct: every rank copies its blocks from the mapped inputs of all others. A rank
// does not know where in a peer's input its block lies: the peer tells with its first signal (Space::kBlock).
//
// Short blocks are exchanged first (see ShortBlocks), in one round of signals. Then every rank copies its long blocks
// from where they lie, beginning with that of the next rank, so that ranks read from different memories, and signals
// again; every rank waits for those ranks that read a long block of its input.
//
// Steps per rank: less than 5n for n ranks. Bytes read from peers: all blocks but the rank's own.
#include <vector>

#include "algorithms/schedules/all_to_all_v/short_blocks.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::vector<Ref> leaving = PackedBlocks(b.in(), b.spec().send_counts);
  const std::vector<Ref> arriving = PackedBlocks(b.out(), b.spec().recv_counts);
  if (b.size() == 1) return b.Copy(arriving[0], leaving[0]);
  const ShortBlocks short_blocks(b);
  short_blocks.Exchange(b, leaving, arriving);

  bool reads = false;
  std::vector<Rank> readers;
  for (int i = 1; i < b.size(); ++i) {
    const Rank peer = (b.rank() + i) % b.size();
    if (!short_blocks.Has(leaving[peer])) readers.push_back(peer);
    if (short_blocks.Has(arriving[peer])) continue;
    b.Copy(arriving[peer], b.BlockFrom(peer));
    reads = true;
  }
  b.Copy(arriving[b.rank()], leaving[b.rank()]);
  if (reads || !readers.empty()) b.Signal();
  b.WaitFor(readers);
}

absl::Status Supports(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  if (size <= kMaxRanksWithBlocks) return SupportsMappedPeers(spec, size, options);
  return absl::UnimplementedError(
      absl::StrCat("ranks tell each other where blocks lie in worlds of up to ", kMaxRanksWithBlocks, " ranks only"));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all_v, direct) = {
    .collective = tutti::Collective::kAllToAllV,
    .name = "direct",
    .summary = "every rank copies its blocks from all mapped inputs; short ones pass through scratch",
    .cost = "1 or 2 rounds of signals, the bytes of all blocks but the own one",
    .supports = tutti::schedules::Supports,
    .build = tutti::schedules::Build,
    .only_copies_from_peers = true,
};
