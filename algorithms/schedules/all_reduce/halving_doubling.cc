// All-reduce, recursive halving and doubling (Rabenseifner 2004, "Optimization of collective reduction operations").
//
// n ranks are folded to p participants, a power of two (fold.h); the buffer of S bytes is cut into p chunks.
// Halving: at distance d = 1, 2 … p/2, participants v and v xor d share a run of chunks; each sends the half that it
// gives up and reduces the half that it keeps (the lower v keeps the lower half), until every participant holds one
// reduced chunk.
// Doubling: the same exchanges backwards; each participant sends all the results that it has, so the run doubles at
// every step.
//
// Steps per rank: 2 log2 p (and 2 more where n is not a power of two). Bytes sent, unless partials are wider than
// elements (partials.h): 2·(p-1)/p·S (participants with an extra: S more; extras: S). The largest messages go to the
// nearest ranks.
#include "algorithms/schedules/chunks.h"
#include "algorithms/schedules/fold.h"
#include "algorithms/schedules/partials.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const Fold fold(b.size());
  if (fold.IsExtra(b.rank())) return AllReduceAsExtra(b);

  const auto arrival = [&](std::int64_t count) { return b.Scratch(PartialType(b.spec()), count); };
  auto [mine, partial] = AllReduceTakeIn(b, fold, arrival);

  const int p = fold.participants();
  const int participant = fold.Participant(b.rank());
  int first = 0;
  int chunks = p;
  for (int distance = 1; distance < p; distance *= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    const bool lower = b.rank() < peer;
    chunks /= 2;
    const Ref given = RunOfChunks(mine, p, lower ? first + chunks : first, chunks);
    if (!lower) first += chunks;
    const Ref kept = RunOfChunks(mine, p, first, chunks);
    const Ref theirs = arrival(kept.count());
    b.Send(peer, given);
    b.Recv(peer, theirs);
    const bool last = chunks == 1;
    b.Reduce(RunOfChunks(last ? b.out() : partial, p, first, chunks), {lower ? kept : theirs, lower ? theirs : kept},
             last ? b.spec().op : PartialOp(b.spec()));
    mine = partial;
  }

  for (int distance = p / 2; distance >= 1; distance /= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    b.Send(peer, RunOfChunks(b.out(), p, first, chunks));
    b.Recv(peer, RunOfChunks(b.out(), p, first ^ chunks, chunks));
    first &= ~chunks;
    chunks *= 2;
  }
  AllReduceHandBack(b, fold);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, halving_doubling) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "halving_doubling",
    .summary = "reduce-scatter by recursive halving, then all-gather by recursive doubling",
    .cost = "2⌊log2 n⌋ steps (+2 unless n is a power of two), 2·(n-1)/n·S bytes (+2·S)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
