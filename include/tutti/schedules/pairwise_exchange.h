// Every rank gives each rank a block, pair by pair: step s sends to the rank s places ahead and receives from the rank
// s places behind, so that at every step each rank is the target of one message only. No step waits for another.
#ifndef TUTTI_SCHEDULES_PAIRWISE_EXCHANGE_H_
#define TUTTI_SCHEDULES_PAIRWISE_EXCHANGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/partials.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {

// Sends leaving[q] to every other rank q, and receives in arriving(q) what rank q sends.
inline void SendPairwise(PlanBuilder& b, const std::vector<Ref>& leaving, absl::FunctionRef<Ref(Rank)> arriving) {
  const int n = b.size();
  for (int s = 1; s < n; ++s) {
    const Rank to = OnRing(b.rank() + s, n);
    const Rank from = OnRing(b.rank() - s, n);
    b.Send(to, leaving[to]);
    b.Recv(from, arriving(from));
  }
}

// Sends block leaving[q] of the input to every rank q, and receives block arriving[q] of the output from it.
inline void ExchangePairwise(PlanBuilder& b, const std::vector<Ref>& leaving, const std::vector<Ref>& arriving) {
  b.Copy(arriving[b.rank()], leaving[b.rank()]);
  SendPairwise(b, leaving, [&](Rank from) { return arriving[from]; });
}

// Calls `visit` with the first element and the length of each slice, in turn, of `count` elements that travel slice
// after slice: a slice is reduced while the next ones are on their way.
inline void ForEachSlice(const PlanBuilder& b, std::int64_t count,
                         absl::FunctionRef<void(std::int64_t, std::int64_t)> visit) {
  const std::int64_t slice = ElementsPerSegment(b, b.in().dtype);
  for (std::int64_t begin = 0; begin < count; begin += slice) visit(begin, std::min(slice, count - begin));
}

// Combines own[this rank] and what arrives from all other ranks, in rank order, into `result`, slice after slice.
// `exchange` gets the slices of `own`, of which own[0] is the longest, and the function that says where what a rank
// sends arrives.
inline void ReduceArrivals(
    PlanBuilder& b, const std::vector<Ref>& own, const Ref& result,
    absl::FunctionRef<void(const std::vector<Ref>& slices, absl::FunctionRef<Ref(Rank)> arriving)> exchange) {
  // For each sender, scratch for as many slices as are on the wire or being reduced at a time, used in turn.
  constexpr std::int64_t kMaxPlaces = 8;
  const DType dtype = b.in().dtype;
  const std::int64_t longest = own[0].count();
  if (longest == 0) return;
  const std::int64_t slice = std::min(ElementsPerSegment(b, dtype), longest);
  const std::int64_t places = std::min(DivideRoundingUp(longest, slice), kMaxPlaces);
  std::vector<Ref> arrivals(own.size());
  for (Rank from = 0; from < b.size(); ++from) {
    if (from != b.rank()) arrivals[from] = b.Scratch(dtype, places * slice);
  }
  ForEachSlice(b, longest, [&](std::int64_t begin, std::int64_t) {
    const std::vector<Ref> slices = SlicesOf(own, begin, slice);
    const Ref reduced = SliceOf(result, begin, slice);
    std::vector<Ref> operands = slices;
    exchange(slices, [&](Rank from) {
      return operands[from] = arrivals[from].Elements(begin / slice % places * slice, reduced.count());
    });
    b.Reduce(reduced, operands, b.spec().op);
  });
}

// Sends leaving[q] to every rank q, and combines what all ranks sent this rank, in rank order, into `result`;
// leaving[0] is the longest. Long ones travel slice after slice.
inline void ReducePairwise(PlanBuilder& b, const std::vector<Ref>& leaving, const Ref& result) {
  ReduceArrivals(b, leaving, result, [&](const std::vector<Ref>& slices, absl::FunctionRef<Ref(Rank)> arriving) {
    SendPairwise(b, slices, arriving);
  });
}

// Sending to all ranks at once is chosen between nodes only, where messages are long on their way, and in worlds of few
// ranks.
inline absl::Status FewRanksBetweenNodes(int size, const PlanOptions& options) {
  constexpr int kMaxRanks = 64;
  if (options.one_node()) return absl::FailedPreconditionError("the schedule is not chosen inside a node");
  if (size <= kMaxRanks) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the schedule is not chosen for more than ", kMaxRanks, " ranks"));
}

// OK for blocks of spec.count elements in up to `most` bytes.
inline absl::Status OfShortBlocks(const CollectiveSpec& spec, std::int64_t most) {
  if (spec.count <= most / SizeOf(spec.dtype)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the schedule is not chosen for more than ", most, " bytes to each rank"));
}

// `competes` of schedules that send blocks of spec.count elements: they are chosen for short blocks, because long ones
// would meet in the queues of the links.
inline absl::Status PairwiseCompetes(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  absl::Status few = FewRanksBetweenNodes(size, options);
  return few.ok() ? OfShortBlocks(spec, 32 << 10) : few;
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_PAIRWISE_EXCHANGE_H_
