// All-reduce, recursive doubling (Thakur, Rabenseifner and Gropp 2005, "Optimization of collective communication
// operations in MPICH", §4.5).
//
// n ranks are folded to p participants, a power of two (fold.h). At distance d = 1, 2 … p/2, participant v exchanges
// its whole partial, S bytes, with participant v xor d. The two then combine the partials of the same two runs of
// ranks, the lower run first, so both hold the same bits after the step, and all participants after the last step.
//
// Steps per rank: log2 p (and 2 more where n is not a power of two). Bytes sent, unless partials are wider than
// elements (partials.h): log2 p · S (participants with an extra: S more; extras: S). With few steps and many bytes the
// schedule serves small buffers.
#include "tutti/schedule.h"
#include "tutti/schedules/fold.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const Fold fold(b.size());
  if (fold.IsExtra(b.rank())) return HandToPartner(b);

  // Two slots, so that the next partner's partial may arrive while this partner's is combined.
  Slots arrivals(b, b.out().count());
  auto [mine, partial] = AllReduceTakeIn(b, fold, [&](std::int64_t count) { return arrivals.Next(count); });

  const int participant = fold.Participant(b.rank());
  for (int distance = 1; distance < fold.participants(); distance *= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    const Ref theirs = arrivals.Next(mine.count());
    b.Send(peer, mine);
    b.Recv(peer, theirs);
    const Ref& lower = b.rank() < peer ? mine : theirs;
    const Ref& upper = b.rank() < peer ? theirs : mine;
    if (2 * distance < fold.participants()) {
      b.Reduce(partial, {lower, upper}, PartialOp(b.spec()));
      mine = partial;
    } else {
      b.Reduce(b.out(), {lower, upper}, b.spec().op);
    }
  }
  AllReduceHandBack(b, fold);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, recursive_doubling) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "recursive_doubling",
    .summary = "whole buffers are exchanged with partners at distance 1, 2, 4 …",
    .cost = "⌊log2 n⌋ steps (+2 unless n is a power of two), ⌊log2 n⌋·S bytes (+S unless n is a power of two)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
