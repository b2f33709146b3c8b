// All-reduce, recursive halving and doubling (Rabenseifner 2004, "Optimization of collective reduction operations").
//
// n ranks are folded to p participants, a power of two (fold.h); the buffer of S bytes is cut into p chunks.
// Halving: at distance d = 1, 2 … p/2, participants v and v xor d share a run of chunks; each sends the half that it
// gives up and reduces the half that it keeps (the lower v keeps the lower half), until every participant holds one
// reduced chunk.
// Doubling: the same exchanges backwards; each participant sends all the results that it has, so the run doubles at
// every step.
//
// A run that is longer than a segment travels in pieces of whole chunks, so that a piece that travels on waits for its
// own chunks alone. Cut elsewhere, the pieces of one exchange would wait for all of another: 1,000,000 bytes on 4 hosts
// at 1 Gb/s would take 18.8 ms, not 12.6.
//
// Steps per rank: 2 log2 p (and 2 more where n is not a power of two). Bytes sent, unless partials are wider than
// elements (partials.h): 2·(p-1)/p·S (participants with an extra: S more; extras: S). The largest messages go to the
// nearest ranks.
#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/fold.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const Fold fold(b.size());
  if (fold.IsExtra(b.rank())) return HandToPartner(b);

  const auto arrival = [&](std::int64_t count) { return b.Scratch(PartialType(b), count); };
  const Participation taken = AllReduceTakeIn(b, fold, arrival);
  Ref mine = taken.mine;

  const int p = fold.participants();
  const int per_piece = ChunksPerPiece(b, RunOfChunks(mine, p, 0, 1), p);
  // Calls visit(chunk, chunks) for each piece of a run.
  const auto for_pieces = [&](int first, int chunks, absl::FunctionRef<void(int, int)> visit) {
    for (int c = 0; c < chunks; c += per_piece) visit(first + c, std::min(per_piece, chunks));
  };
  const int participant = fold.Participant(b.rank());
  int first = 0;
  int chunks = p;
  for (int distance = 1; distance < p; distance *= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    const bool lower = b.rank() < peer;
    chunks /= 2;
    const int given = lower ? first + chunks : first;
    if (!lower) first += chunks;
    const bool last = chunks == 1;
    for_pieces(given, chunks, [&](int c, int n) { b.Send(peer, RunOfChunks(mine, p, c, n)); });
    for_pieces(first, chunks, [&](int c, int n) {
      const Ref kept = RunOfChunks(mine, p, c, n);
      const Ref theirs = arrival(kept.count());
      b.Recv(peer, theirs);
      b.Reduce(RunOfChunks(last ? b.out() : taken.partial, p, c, n), {lower ? kept : theirs, lower ? theirs : kept},
               last ? b.spec().op : PartialOp(b.spec()));
    });
    mine = taken.partial;
  }

  for (int distance = p / 2; distance >= 1; distance /= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    for_pieces(first, chunks, [&](int c, int n) { b.Send(peer, RunOfChunks(b.out(), p, c, n)); });
    for_pieces(first ^ chunks, chunks, [&](int c, int n) { b.Recv(peer, RunOfChunks(b.out(), p, c, n)); });
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
    .cost =
        "2⌊log2 n⌋ steps (+2 unless n is a power of two), 2·(p-1)/p·S bytes (p: n rounded down to a power of two; +S "
        "unless n is one)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
