// All-reduce, toy: a chain. Partials travel from rank 0 to rank n-1, each rank adding its own input, and the result
// travels back.
//
// Steps per rank: at most 2 messages sent and 2 received. Bytes sent: S by the first and the last rank, 2·S by the
// others (16-bit sums, averages and products: twice as many upwards, since partials are fp32). Segments follow each
// other along the chain.
#include "tutti/schedule.h"
#include "tutti/schedules/partials.h"

namespace tutti {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const Rank last = b.size() - 1;
  Ref partial = schedules::InputAsPartial(b);
  if (b.rank() > 0) {
    const Ref arrived = b.Scratch(schedules::PartialType(b), b.in().count());
    b.Recv(b.rank() - 1, arrived);
    if (b.rank() == last) {
      b.Reduce(b.out(), {arrived, partial}, b.spec().op);  // an average divides here, once
    } else {
      b.Reduce(arrived, {arrived, partial}, schedules::PartialOp(b.spec()));
      partial = arrived;
    }
  }
  if (b.rank() < last) {
    b.Send(b.rank() + 1, partial);
    b.Recv(b.rank() + 1, b.out());
  }
  if (b.rank() > 0) b.Send(b.rank() - 1, b.out());
}

}  // namespace
}  // namespace tutti

TUTTI_SCHEDULE(all_reduce, toy) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "toy",
    .summary = "a chain: partials travel to the last rank, and the result back",
    .cost = "2(n-1) steps, up to 2·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::Build,
};
