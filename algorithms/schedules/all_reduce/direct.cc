// All-reduce, direct: every rank reads and writes the mapped memory of all others.
//
// One-shot (buffers of S ≤ OneShotBytes bytes): every rank copies its input to scratch, all ranks meet, and every rank
// reduces all scratches into its own output, after one round of signals.
// Two-shot (larger buffers): all ranks meet, rank r reduces chunk r of all inputs straight into all outputs, all ranks
// meet again. Each rank reads S bytes and writes S bytes, the minimum, since nothing is copied on the way. Chunks end
// at cache lines.
//
// Operands are combined in rank order, so every rank ends with the same bits.
// Steps per rank, with n ranks: one-shot n+2, two-shot 2n+1; all but 2 (one-shot) or 1 (two-shot) of them are signals
// and waits. Bytes read from and written to peers: one-shot (n-1)·S, two-shot 2·(n-1)/n·S.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void BuildOneShot(PlanBuilder& b) {
  const Ref input = InputInScratch(b);
  MeetAll(b);
  b.Reduce({b.out()}, OnEveryRank(b, input), b.spec().op);
}

void BuildTwoShot(PlanBuilder& b) {
  const Range chunk = CacheLineChunk(b.in().dtype, b.in().count(), b.size(), b.rank());
  MeetAll(b);
  b.Reduce(OnEveryRank(b, b.out().Elements(chunk.begin, chunk.count)),
           OnEveryRank(b, b.in().Elements(chunk.begin, chunk.count)), b.spec().op);
  MeetAll(b);
}

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  b.in().bytes <= OneShotBytes(b) ? BuildOneShot(b) : BuildTwoShot(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, direct) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "direct",
    .summary = "every rank reduces its chunk of all mapped inputs into all mapped outputs",
    .cost = "1 or 2 rounds of signals, (n-1)·S (small) or 2·(n-1)/n·S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
