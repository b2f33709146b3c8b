// Chains: ranks in the order of their distance from the root, each of which passes a buffer on to its neighbour piece
// by piece, so that all links of the chain carry pieces at the same time.
#ifndef TUTTI_SCHEDULES_CHAIN_PIECES_H_
#define TUTTI_SCHEDULES_CHAIN_PIECES_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/schedules/chunks.h"

namespace tutti::schedules {

// A chain is chosen between nodes only, where links and not processors are the bottleneck; and in worlds of which a
// prediction looks at every rank, because each makes the chain longer.
inline absl::Status ChainCompetes(const CollectiveSpec& /*spec*/, int size, const PlanOptions& options) {
  constexpr int kLongest = 32;
  if (options.one_node()) return absl::FailedPreconditionError("a chain is not chosen inside a node");
  if (size <= kLongest) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("a chain is not chosen for more than ", kLongest, " ranks"));
}

// The length of a piece of the call's `count` elements, of `dtype` on the wire. The last rank of n gets its first piece
// n-2 pieces after the second rank, so pieces are short: that time is about a thirtieth of the whole. Pieces are no
// longer than a segment, and so long that sending one costs little beside its bytes.
inline std::int64_t ChainPiece(const PlanBuilder& b, DType dtype) {
  constexpr std::int64_t kMinBytes = 32 << 10;
  constexpr std::int64_t kMaxPieces = 256;
  const std::int64_t segment = ElementsPerSegment(b, dtype);
  const std::int64_t pieces = std::clamp<std::int64_t>(32 * std::int64_t{b.size() - 2}, 1, kMaxPieces);
  const std::int64_t short_one = std::max(DivideRoundingUp(b.spec().count, pieces), kMinBytes / SizeOf(dtype));
  return std::min(short_one, segment);
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_CHAIN_PIECES_H_
