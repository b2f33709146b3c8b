// Reduce-scatter, direct: every rank reads its chunk from the mapped memory of all others.
//
// One-shot (inputs of at most OneShotBytes): every rank copies its input to scratch, all ranks meet, and rank r
// reduces chunk r of all scratches into its output. Larger inputs: all ranks meet, rank r reduces chunk r of all inputs
// into its output, all ranks meet again, so that no input is overwritten while a peer still reads it.
//
// Operands are combined in rank order. Steps per rank, with n ranks: one-shot n+2, otherwise 2n+1. Bytes read from
// peers: (n-1)·C, C being one rank's output.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.in().bytes == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const std::int64_t first = b.rank() * b.spec().count;
  const bool one_shot = b.in().bytes <= OneShotBytes(b);
  const Ref input = one_shot ? InputInScratch(b) : b.in();
  MeetAll(b);
  b.Reduce({b.out()}, OnEveryRank(b, input.Elements(first, b.spec().count)), b.spec().op);
  if (!one_shot) MeetAll(b);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, direct) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "direct",
    .summary = "every rank reduces its chunk of all mapped inputs",
    .cost = "1 or 2 rounds of signals, (n-1)·C bytes (C: one rank's output)",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
