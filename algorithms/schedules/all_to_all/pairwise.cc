// All-to-all, pairwise (Thakur, Rabenseifner and Gropp 2005, §4.2): with n ranks, at step s = 1 … n-1, rank r sends to
// rank r+s and receives from rank r-s, so that at every step each rank is the target of one message only.
//
// Steps per rank: n-1, each one block of C bytes sent and one received. Bytes sent: (n-1)·C, the minimum.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) { ExchangePairwise(b, ChunksOf(b.in(), b.size()), ChunksOf(b.out(), b.size())); }

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all, pairwise) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "pairwise",
    .summary = "at step s to the rank s ahead, from the rank s behind",
    .cost = "n-1 steps, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
