// All-gather, toy: every rank sends its block to every other rank.
//
// Steps per rank: n-1 messages sent and n-1 received, all at once. Bytes sent: (n-1)·C, C being one block.
#include "tutti/schedule.h"

namespace tutti {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  const auto block_of = [&](Rank rank) { return b.out().Elements(rank * count, count); };

  b.Copy(block_of(b.rank()), b.in());
  for (Rank peer = 0; peer < b.size(); ++peer) {
    if (peer == b.rank()) continue;
    b.Send(peer, b.in());
    b.Recv(peer, block_of(peer));
  }
}

}  // namespace
}  // namespace tutti

TUTTI_SCHEDULE(all_gather, toy) = {
    .collective = tutti::Collective::kAllGather,
    .name = "toy",
    .summary = "every rank sends its block to every other rank",
    .cost = "1 step, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::Build,
};
