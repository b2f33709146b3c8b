// Partials: operands that travel between ranks while a result is still incomplete. Sums, averages and products of
// 16-bit types travel and accumulate in fp32 and are rounded once, by the last combination; other partials have the
// type of the elements. So have those of two ranks, whose one combination is the last.
#ifndef TUTTI_SCHEDULES_PARTIALS_H_
#define TUTTI_SCHEDULES_PARTIALS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "tutti/plan_builder.h"

namespace tutti::schedules {

// Whether partials of `size` ranks have a wider type than elements.
inline bool AccumulatesWider(const CollectiveSpec& spec, int size) {
  const bool exact = spec.op == ReduceOp::kMin || spec.op == ReduceOp::kMax;
  return size > 2 && !exact && AccumulatorOf(spec.dtype) != spec.dtype;
}

inline DType PartialType(const PlanBuilder& b) {
  // Not spec().dtype: the sums of a node, of 16-bit elements, are wider inputs than elements.
  return AccumulatesWider(b.spec(), b.size()) ? AccumulatorOf(b.spec().dtype) : b.in().dtype;
}

inline bool PartialsAreWider(const PlanBuilder& b) { return PartialType(b) != b.spec().dtype; }

// The operator of every combination but the last, which uses spec.op: an average divides once, at the end.
inline ReduceOp PartialOp(const CollectiveSpec& spec) { return spec.op == ReduceOp::kAvg ? ReduceOp::kSum : spec.op; }

// This rank's whole input as a partial: the input itself, or a wider copy in scratch.
inline Ref InputAsPartial(PlanBuilder& b) {
  if (!PartialsAreWider(b)) return b.in();
  const Ref wide = b.Scratch(PartialType(b), b.in().count());
  b.Copy(wide, b.in());
  return wide;
}

// Two pieces of scratch for partials, used in turn: one fills while the other is sent. A schedule that passes a long
// buffer through slots, a slice at a time, needs little scratch, however long the buffer is.
class Slots {
 public:
  // The length of a slice in elements: a few segments, of which one is on the wire and one is being reduced.
  static std::int64_t SliceElements(const PlanBuilder& b, std::int64_t longest) {
    constexpr std::int64_t kSegmentsPerSlice = 4;
    const std::int64_t segment = b.options().segment_bytes / SizeOf(AccumulatorOf(b.spec().dtype));
    return std::min(kSegmentsPerSlice * segment, longest);
  }

  Slots(PlanBuilder& b, std::int64_t elements) : builder_(b), elements_(elements) {}

  std::int64_t elements() const { return elements_; }

  // The slot whose turn it is, cut to `count` elements.
  Ref Next(std::int64_t count) {
    Ref& slot = slots_[turn_];
    turn_ = 1 - turn_;
    if (slot.bytes == 0) slot = builder_.Scratch(PartialType(builder_), elements_);
    return slot.Elements(0, count);
  }

  // A slice as a partial: the slice itself, or its wider copy in the next slot.
  Ref AsPartial(const Ref& slice) {
    if (slice.dtype == PartialType(builder_)) return slice;
    const Ref wide = Next(slice.count());
    builder_.Copy(wide, slice);
    return wide;
  }

 private:
  PlanBuilder& builder_;
  std::int64_t elements_;
  std::array<Ref, 2> slots_;
  std::size_t turn_ = 0;
};

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_PARTIALS_H_
