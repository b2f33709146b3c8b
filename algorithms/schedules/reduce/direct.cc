// Reduce, direct: the ranks other than the root reduce their mapped inputs into scratch of the root, a chunk each.
//
// All ranks meet, the i-th rank of the n-1 others reduces the i-th chunk of the others' inputs into the root's scratch,
// all meet again, and the root combines its own input with the scratch. The buffer of S bytes passes through the
// scratch slice after slice, two slices at a time: while the root combines one, the others reduce the next.
//
// The root's own input comes last, and no other rank reads it, because the other ranks do not know whether the root is
// in place. Operands of the others are combined in rank order. Steps per rank: about 2n for each slice, for n ranks.
// Bytes read from peers: (n-2)/(n-1)·S by every rank but the root; bytes written to the root: S/(n-1) by each (16-bit
// sums, averages and products: twice that, since partials are fp32).
#include <algorithm>
#include <vector>

#include "algorithms/schedules/mapped_peers.h"
#include "algorithms/schedules/partials.h"
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

// Combines the same chunk of the inputs of all ranks but the root, in rank order, into `target`. Partials that are
// wider than the inputs are copied to `wide` first, and combined one by one.
void ReduceOthers(PlanBuilder& b, const Ref& chunk, const Ref& target, Slots& sums, Slots& wide) {
  std::vector<Ref> theirs;
  for (Rank rank = 0; rank < b.size(); ++rank) {
    if (rank != b.spec().root) theirs.push_back(OnRank(b, rank, chunk));
  }
  if (theirs.size() == 1) return b.Copy(target, theirs[0]);
  if (!PartialsAreWider(b.spec())) return b.Reduce(absl::MakeConstSpan(&target, 1), theirs, PartialOp(b.spec()));
  const Ref sum = sums.AsPartial(theirs[0]);
  for (std::size_t i = 1; i < theirs.size(); ++i) {
    const Ref next = wide.AsPartial(theirs[i]);
    b.Reduce(i + 1 == theirs.size() ? target : sum, {sum, next}, PartialOp(b.spec()));
  }
}

void Build(PlanBuilder& b) {
  const CollectiveSpec& spec = b.spec();
  if (spec.count == 0) return;
  if (b.size() == 1) return b.Copy(b.out(), b.in());

  const DType type = PartialType(spec);
  const std::int64_t slice = Slots::SliceElements(b, spec.count);
  const Ref slots[] = {b.Scratch(type, slice), b.Scratch(type, slice)};
  Slots sums(b, slice);
  Slots wide(b, slice);
  const bool is_root = b.rank() == spec.root;
  const int place = b.rank() < spec.root ? b.rank() : b.rank() - 1;  // among the others

  // After round k of signals slice k is in its slot, and the root has done with slice k-2, which had the same slot.
  MeetAll(b);
  int round = 0;
  for (std::int64_t begin = 0; begin < spec.count; begin += slice, ++round) {
    const std::int64_t count = std::min(slice, spec.count - begin);
    const Ref slot = slots[round % 2].Elements(0, count);
    const Ref input = b.in().Elements(begin, count);
    if (!is_root) {
      const Range chunk = CacheLineChunk(type, count, b.size() - 1, place);
      const Ref target = slot.Elements(chunk.begin, chunk.count).At(spec.root);
      ReduceOthers(b, input.Elements(chunk.begin, chunk.count), target, sums, wide);
    }
    MeetAll(b);
    if (is_root) b.Reduce(b.out().Elements(begin, count), {slot, wide.AsPartial(input)}, spec.op);
  }
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce, direct) = {
    .collective = tutti::Collective::kReduce,
    .name = "direct",
    .summary = "the others reduce a chunk each into scratch of the root, which adds its own input",
    .cost = "2 rounds of signals or more, S bytes",
    .supports = tutti::SupportsMappedPeers,
    .build = tutti::schedules::Build,
};
