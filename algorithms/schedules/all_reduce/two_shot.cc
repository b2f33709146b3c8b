// All-reduce, two-shot: a reduce-scatter and an all-gather, both by pairwise exchange (Thakur, Rabenseifner and Gropp
// 2005, §4).
//
// The buffer of S bytes is cut into one chunk per rank. Every rank sends every other rank the chunk that the other rank
// is to reduce, combines what it has received for its own chunk, in rank order, and sends the result to all. Long
// chunks travel slice after slice, so that a slice is reduced while the next ones are on their way.
//
// Steps per rank: 2, of n-1 messages of one chunk at once. Bytes sent: 2·(n-1)/n·S, the minimum, also for 16-bit sums,
// averages and products: inputs and results travel, partials (partials.h) never do.
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/pairwise_exchange.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const std::vector<Ref> results = ChunksOf(b.out(), b.size());
  ReducePairwise(b, ChunksOf(b.in(), b.size()), results[b.rank()]);
  const std::int64_t slice = ElementsPerSegment(b, b.out().dtype);
  for (std::int64_t begin = 0; begin < results[0].count(); begin += slice) {
    const std::vector<Ref> slices = SlicesOf(results, begin, slice);
    SendPairwise(b, std::vector<Ref>(slices.size(), slices[b.rank()]), [&](Rank from) { return slices[from]; });
  }
}

// The schedule competes where partials are wider than elements, because other schedules send more bytes then. Of other
// long chunks it sends as many bytes as `ring`, but the messages of n-1 ranks meet on each link; of few bytes more
// messages than others do.
absl::Status Competes(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  constexpr std::int64_t kMinBytes = 4 << 10;
  if (absl::Status few = FewRanksBetweenNodes(size, options); !few.ok()) return few;
  if (!AccumulatesWider(spec, size)) {
    return absl::FailedPreconditionError(
        "the schedule is chosen for sums, averages and products of 16-bit types on 3 ranks or more");
  }
  if (ChunkOf(spec.count, size, 0).count >= kMinBytes / SizeOf(spec.dtype)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the schedule is not chosen for fewer than ", kMinBytes, " bytes to each rank"));
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_reduce, two_shot) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "two_shot",
    .summary = "every rank sends each rank its chunk at once, and the reduced chunk to all",
    .cost = "2 steps of n-1 messages, 2·(n-1)/n·S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::Competes,
};
