// Every rank gives each rank a block, pair by pair: step s sends to the rank s places ahead and receives from the rank
// s places behind, so that at every step each rank is the target of one message only. No step waits for another.
#ifndef TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_
#define TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "algorithms/schedules/ring_steps.h"
#include "tutti/plan_builder.h"

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

// Sends leaving[q] to every rank q, and combines what all ranks sent this rank, in rank order, into the output.
inline void ReducePairwise(PlanBuilder& b, const std::vector<Ref>& leaving) {
  std::vector<Ref> operands = leaving;  // but for this rank's own, places in scratch
  SendPairwise(b, leaving, [&](Rank from) {
    operands[from] = b.Scratch(b.in().dtype, b.out().count());
    return operands[from];
  });
  b.Reduce({b.out()}, operands, b.spec().op);
}

// Sending a block to all ranks at once is chosen between nodes only, where messages are long on their way; in worlds of
// few ranks; and for short blocks: long ones would meet in the queues of the links.
inline absl::Status PairwiseCompetes(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  constexpr int kMostRanks = 64;
  constexpr std::int64_t kMostBytes = 32 << 10;
  if (options.one_node()) return absl::FailedPreconditionError("the schedule is not chosen inside a node");
  if (size > kMostRanks) {
    return absl::FailedPreconditionError(
        absl::StrCat("the schedule is not chosen for more than ", kMostRanks, " ranks"));
  }
  if (spec.count <= kMostBytes / SizeOf(spec.dtype)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the schedule is not chosen for more than ", kMostBytes, " bytes to each rank"));
}

}  // namespace tutti::schedules

#endif  // TUTTI_ALGORITHMS_SCHEDULES_PAIRWISE_EXCHANGE_H_
