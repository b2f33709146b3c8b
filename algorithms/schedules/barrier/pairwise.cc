// Barrier, pairwise: every rank sends a token to every other rank, and has met all when it has received theirs. The
// schedule waits only once for the way from node to node, and serves few ranks where that way is long.
//
// Steps per rank: 1, of n-1 messages of one byte at once.
#include "tutti/schedule.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const Ref token = b.Scratch(DType::kU8, 1);
  const std::vector<Ref> tokens(static_cast<std::size_t>(b.size()), token);
  SendPairwise(b, tokens, [&](Rank) { return b.Scratch(DType::kU8, 1); });
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(barrier, pairwise) = {
    .collective = tutti::Collective::kBarrier,
    .name = "pairwise",
    .summary = "a token to every other rank at once",
    .cost = "1 step of n-1 messages of one byte",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::PairwiseCompetes,
};
