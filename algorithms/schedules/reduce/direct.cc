// Reduce, direct: every rank reduces a chunk of all mapped inputs into the output of the root.
//
// One-shot (buffers of S ≤ OneShotBytes bytes): every rank copies its input to scratch, all ranks meet, and the root
// reduces all scratches. Larger buffers: all ranks meet, rank r reduces chunk r of all inputs straight into the root's
// output, all ranks meet again. Chunks end at cache lines.
//
// Operands are combined in rank order. Steps per rank, with n ranks: one-shot up to n+2, otherwise 2n+1. Bytes read
// from peers: one-shot (n-1)·S by the root, otherwise (n-1)/n·S by each rank; bytes written to the root: S/n by each.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void BuildOneShot(PlanBuilder& b) {
  const Ref input = InputInScratch(b);
  MeetAll(b);
  if (b.rank() == b.spec().root) b.Reduce({b.out()}, OnEveryRank(b, input), b.spec().op);
}

void BuildByChunks(PlanBuilder& b) {
  const Range chunk = CacheLineChunk(b.in().dtype, b.in().count(), b.size(), b.rank());
  MeetAll(b);
  b.Reduce({OutputOfRoot(b).Elements(chunk.begin, chunk.count)},
           OnEveryRank(b, b.in().Elements(chunk.begin, chunk.count)), b.spec().op);
  MeetAll(b);
}

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  b.in().bytes <= OneShotBytes(b) ? BuildOneShot(b) : BuildByChunks(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce, direct) = {
    .collective = tutti::Collective::kReduce,
    .name = "direct",
    .summary = "every rank reduces its chunk of all mapped inputs into the mapped output of the root",
    .cost = "1 or 2 rounds of signals, (n-1)·S (small) or S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
