// All-gather, Bruck (Bruck, Ho, Kipnis, Upfal and Weathersby 1997, "Efficient algorithms for all-to-all
// communications").
//
// The output holds one block per rank. Rank r gathers a run of blocks, at first its own: at distance d = 1, 2, 4 … it
// sends the first min(d, n-d) blocks of the run to rank r-d, and receives as many, which continue the run, from rank
// r+d. The original paper collects the run at the front of a buffer and rotates it at the end; here every block goes
// straight to its place, and a run that wraps around the end of the output travels as two messages. Where n is a power
// of two, ranks exchange in pairs (doubling_steps.h): the run of a rank is then the d blocks that begin at a multiple
// of d, which is known as recursive doubling.
//
// Steps per rank: ⌈log2 n⌉, for any n. Bytes sent: (n-1)·C, C being one block. The schedule serves small blocks.
#include <algorithm>
#include <vector>

#include "tutti/schedule.h"
#include "tutti/schedules/doubling_steps.h"

namespace tutti::schedules {
namespace {

// The blocks first … first+length-1 (mod n) as one or two ranges of `whole`, which has n blocks of `count` elements.
std::vector<Ref> RunOfBlocks(const Ref& whole, std::int64_t count, int n, int first, int length) {
  const int before_wrap = std::min(length, n - first);
  return {whole.Elements(first * count, before_wrap * count), whole.Elements(0, (length - before_wrap) * count)};
}

void Build(PlanBuilder& b) {
  const int n = b.size();
  const std::int64_t count = b.spec().count;
  b.Copy(b.out().Elements(b.rank() * count, count), b.in());
  for (int distance = 1; distance < n; distance *= 2) {
    const int length = std::min(distance, n - distance);
    const Rank to = Behind(b.rank(), distance, n);
    const Rank from = Ahead(b.rank(), distance, n);
    const auto first_of_run = [&](Rank rank) { return IsPowerOfTwo(n) ? rank - rank % distance : rank; };
    for (const Ref& run : RunOfBlocks(b.out(), count, n, first_of_run(b.rank()), length)) b.Send(to, run);
    for (const Ref& run : RunOfBlocks(b.out(), count, n, first_of_run(from), length)) b.Recv(from, run);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_gather, bruck) = {
    .collective = tutti::Collective::kAllGather,
    .name = "bruck",
    .summary = "runs of blocks that double at every step",
    .cost = "⌈log2 n⌉ steps, (n-1)·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
