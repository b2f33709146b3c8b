// The two halves of every ring schedule. n ranks stand in a ring; each sends only to the next rank and receives only
// from the previous one, so every link carries one chunk per step, at full bandwidth, whatever n is.
#ifndef TUTTI_SCHEDULES_RING_STEPS_H_
#define TUTTI_SCHEDULES_RING_STEPS_H_

#include <algorithm>
#include <cstdint>

#include "absl/types/span.h"
#include "tutti/plan_builder.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {

// `position` on a ring of n places; `position` may be up to n too low or too high.
inline int OnRing(int position, int n) { return (position + n) % n; }
inline Rank NextOnRing(const PlanBuilder& b) { return OnRing(b.rank() + 1, b.size()); }
inline Rank PreviousOnRing(const PlanBuilder& b) { return OnRing(b.rank() - 1, b.size()); }

// Reduce-scatter: combines chunks[r] of all ranks into `result` of rank r; n ≥ 2, chunks[0] is the longest chunk.
//
// Chunk c starts at rank c+1 and travels around the ring to rank c; every rank on its way adds its own part. So at step
// s = 0 … n-2 rank r sends its partial of chunk r-1-s and receives the previous rank's partial of chunk r-2-s, to which
// it adds its own part. Long chunks go around slice after slice, through the same slots of scratch: `arrivals` for what
// is received, `widened` for chunks that are not partials yet.
inline void RingReduceScatter(PlanBuilder& b, absl::Span<const Ref> chunks, const Ref& result, Slots& arrivals,
                              Slots& widened) {
  const int n = b.size();
  const std::int64_t longest = chunks[0].count();
  const std::int64_t slice = std::min(arrivals.elements(), widened.elements());

  for (std::int64_t begin = 0; begin < longest; begin += slice) {
    const auto slice_of = [&](const Ref& chunk) { return SliceOf(chunk, begin, slice); };
    Ref partial = widened.AsPartial(slice_of(chunks[OnRing(b.rank() - 1, n)]));
    for (int s = 0; s <= n - 2; ++s) {
      const Ref mine = widened.AsPartial(slice_of(chunks[OnRing(b.rank() - 2 - s, n)]));
      const Ref theirs = arrivals.Next(mine.count());
      b.Send(NextOnRing(b), partial);
      b.Recv(PreviousOnRing(b), theirs);
      if (s < n - 2) {
        b.Reduce(theirs, {theirs, mine}, PartialOp(b.spec()));
        partial = theirs;
      } else {
        b.Reduce(slice_of(result), {theirs, mine}, b.spec().op);
      }
    }
  }
}

inline void RingReduceScatter(PlanBuilder& b, absl::Span<const Ref> chunks, const Ref& result) {
  const std::int64_t slice = Slots::SliceElements(b, chunks[0].count());
  Slots arrivals(b, slice);
  Slots widened(b, slice);
  RingReduceScatter(b, chunks, result, arrivals, widened);
}

// All-gather: every rank ends with all of chunks[0 … n-1]; at the start rank r has chunks[r].
//
// At step s = 0 … n-2 rank r sends chunk r-s, which it has just received (s = 0: its own), and receives chunk r-1-s.
inline void RingAllGather(PlanBuilder& b, absl::Span<const Ref> chunks) {
  const int n = b.size();
  for (int s = 0; s <= n - 2; ++s) {
    b.Send(NextOnRing(b), chunks[OnRing(b.rank() - s, n)]);
    b.Recv(PreviousOnRing(b), chunks[OnRing(b.rank() - 1 - s, n)]);
  }
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_RING_STEPS_H_
