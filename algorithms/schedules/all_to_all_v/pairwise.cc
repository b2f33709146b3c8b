// All-to-all of blocks of any size, pairwise (Thakur, Rabenseifner and Gropp 2005, §4.2): with n ranks, at step s = 1 …
// n-1, rank r sends to rank r+s and receives from rank r-s, so that at every step each rank is the target of one
// message only. Blocks are packed in rank order; an empty block makes no message.
//
// Steps per rank: n-1. Bytes sent: all blocks but the rank's own, the minimum.
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  ExchangePairwise(b, PackedBlocks(b.in(), b.spec().send_counts), PackedBlocks(b.out(), b.spec().recv_counts));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all_v, pairwise) = {
    .collective = tutti::Collective::kAllToAllV,
    .name = "pairwise",
    .summary = "at step s to the rank s ahead, from the rank s behind",
    .cost = "n-1 steps, the bytes of all blocks but the own one",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
