// Every rank gives each rank a block, pair by pair: the steps that all_to_all and all_to_all_v share.
#ifndef TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_
#define TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_

#include <vector>

#include "algorithms/schedules/ring_steps.h"
#include "tutti/plan_builder.h"

namespace tutti::schedules {

// Sends block leaving[q] of the input to every rank q, and receives block arriving[q] of the output from it. Step s
// sends to the rank s places ahead and receives from the rank s places behind.
inline void ExchangePairwise(PlanBuilder& b, const std::vector<Ref>& leaving, const std::vector<Ref>& arriving) {
  const int n = b.size();
  b.Copy(arriving[b.rank()], leaving[b.rank()]);
  for (int s = 1; s < n; ++s) {
    const Rank to = OnRing(b.rank() + s, n);
    const Rank from = OnRing(b.rank() - s, n);
    b.Send(to, leaving[to]);
    b.Recv(from, arriving[from]);
  }
}

}  // namespace tutti::schedules

#endif  // TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_
