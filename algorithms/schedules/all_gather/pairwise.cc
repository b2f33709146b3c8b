// All-gather, pairwise exchange: every rank sends its block to every other rank.
//
// The n-1 messages of a rank do not wait for each other.
//
// Steps per rank: 1, of n-1 messages of one block (C bytes) at once. Bytes sent: (n-1)·C, the minimum. The schedule
// serves blocks of few bytes where the way from node to node is long.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  ExchangePairwise(b, std::vector<Ref>(static_cast<std::size_t>(b.size()), b.in()), ChunksOf(b.out(), b.size()));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, pairwise) = {
    .collective = tutti::Collective::kAllGather,
    .name = "pairwise",
    .summary = "every rank sends its block to all others at once",
    .cost = "1 step of n-1 messages, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::PairwiseCompetes,
};
