// Barrier, dissemination (Hensgen, Finkel and Manber 1988, "Two algorithms for barrier synchronization").
//
// At distance d = 1, 2, 4 … every rank sends a token to rank r+d and receives one from rank r-d; where n is a power of
// two, ranks exchange tokens in pairs (doubling_steps.h). A token leaves only after all earlier tokens have arrived,
// and stands for them too: after the step at distance d a rank has heard, at first or second hand, of 2d-1 other ranks,
// and after the last step of all ranks.
//
// Steps per rank: ⌈log2 n⌉ for n ranks, each one byte sent and one received.
#include "tutti/schedule.h"
#include "tutti/schedules/doubling_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const int n = b.size();
  const Ref token = b.Scratch(DType::kU8, 1);
  for (int distance = 1; distance < n; distance *= 2) {
    const Ref heard = b.Scratch(DType::kU8, 1);
    b.Send(Ahead(b.rank(), distance, n), token);
    b.Recv(Behind(b.rank(), distance, n), heard);
    b.Reduce(token, {token, heard}, ReduceOp::kMax);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(barrier, dissemination) = {
    .collective = tutti::Collective::kBarrier,
    .name = "dissemination",
    .summary = "tokens to the ranks at distance 1, 2, 4 …",
    .cost = "⌈log2 n⌉ steps of one byte",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
