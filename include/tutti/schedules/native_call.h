// Functions that all native schedules use: the whole call is one native step of every rank (tutti/native.h).
#ifndef TUTTI_SCHEDULES_NATIVE_CALL_H_
#define TUTTI_SCHEDULES_NATIVE_CALL_H_

#include "tutti/plan_builder.h"

namespace tutti::schedules {

// `supports` of a native schedule.
inline absl::Status SupportsNative(const CollectiveSpec& spec, int /*size*/, const PlanOptions& options) {
  return CheckNative(options.native, spec);
}

// Writes an average among some of the ranks of the world, which divides by the size of the world: a native sum, then a
// division. 16-bit types are summed in f32 here, because a native 16-bit sum is rounded already.
inline void SumThenDivide(PlanBuilder& b) {
  CollectiveSpec sum = b.spec();
  sum.op = ReduceOp::kSum;
  sum.dtype = AccumulatorOf(sum.dtype);
  const bool widens = sum.dtype != b.spec().dtype;
  const Ref in = widens ? b.Scratch(sum.dtype, b.in().count()) : b.in();
  const Ref out = widens ? b.Scratch(sum.dtype, b.out().count()) : b.out();
  b.Copy(in, b.in());
  b.Native(sum, in, out);
  b.Scale(out, out, b.world_size());
  b.Copy(b.out(), out);
}

// `build` of a native schedule. One rank alone only copies.
inline void BuildNative(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const bool averages = Reduces(b.spec().collective) && b.spec().op == ReduceOp::kAvg;
  if (averages && b.size() != b.world_size()) return SumThenDivide(b);
  b.Native(b.spec(), b.in(), b.out());
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_NATIVE_CALL_H_
