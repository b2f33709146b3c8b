// All-reduce, one-shot: every rank sends its whole buffer to every other rank, and combines what it has received.
//
// n ranks send their S bytes in the order of pairwise_exchange.h. Every rank combines the n buffers in rank order, so
// all ranks end with the same bits.
//
// Steps per rank: 1, of n-1 messages at once. Bytes sent: (n-1)·S. No other schedule of messages waits only once for
// the way from node to node; the schedule serves buffers of few bytes where that way is long.
#include "tutti/schedule.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  ReducePairwise(b, std::vector<Ref>(static_cast<std::size_t>(b.size()), b.in()), b.out());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, one_shot) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "one_shot",
    .summary = "every rank sends its buffer to all others at once",
    .cost = "1 step of n-1 messages, (n-1)·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::PairwiseCompetes,
};
