// Parts of schedules over mapped memory, in which every rank reads and writes the memory of all, without messages.
#ifndef TUTTI_SCHEDULES_MAPPED_PEERS_H_
#define TUTTI_SCHEDULES_MAPPED_PEERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/cost_model.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/schedule.h"

namespace tutti::schedules {

// The most bytes that are first copied to scratch, where peers may read the copy until the next run: the copy saves the
// second round of signals, after which an input may change. A copy of more bytes costs more than a round: about 0.2 µs,
// or 3 µs where the ranks of the call outnumber the processors of the node that has fewest, and wait for each other's
// turns.
inline std::int64_t OneShotBytes(const PlanBuilder& b) {
  const int processors = b.options().model().cores_per_node;
  return processors > 0 && b.size() > processors ? 2048 : 256;
}

// The scratch of a lane: within it a rank may be several calls ahead of its peers, and needs no memory of the arena.
inline constexpr std::int64_t kLaneBytes = 64 << 10;

// OK where peers are mapped, and the `blocks` blocks of spec.count elements that a rank copies to scratch before it
// goes on have at most `most` bytes together.
inline absl::Status SupportsBlocksInScratch(const CollectiveSpec& spec, int blocks, std::int64_t most,
                                            const PlanOptions& options) {
  if (absl::Status mapped = SupportsMappedPeers({}, 1, options); !mapped.ok()) return mapped;
  if (blocks == 0 || spec.count <= most / SizeOf(spec.dtype) / blocks) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the schedule copies ", blocks, " × ", spec.count, " elements of ",
                                               Name(spec.dtype), " to scratch, and serves calls of up to ", most,
                                               " bytes only"));
}

// A barrier: no rank goes on before every rank has come here.
inline void MeetAll(PlanBuilder& b) {
  b.Signal();
  b.WaitAll();
}

// A copy of this rank's input in scratch, which peers may read until the next run.
inline Ref InputInScratch(PlanBuilder& b) {
  const Ref copy = b.Scratch(b.in().dtype, b.in().count());
  b.Copy(copy, b.in());
  return copy;
}

inline Ref OnRank(const PlanBuilder& b, Rank rank, const Ref& ref) { return rank == b.rank() ? ref : ref.At(rank); }

// The range `ref` in the memory of every rank, in rank order.
inline std::vector<Ref> OnEveryRank(const PlanBuilder& b, const Ref& ref) {
  std::vector<Ref> refs;
  refs.reserve(static_cast<std::size_t>(b.size()));
  for (Rank rank = 0; rank < b.size(); ++rank) refs.push_back(OnRank(b, rank, ref));
  return refs;
}

// The whole input, or output, of the root, also where this rank has no such buffer. Only the root knows whether its own
// call is in place: a root that passes one buffer announces it as input and as output. Only for whole calls, since the
// buffers of a part of a plan (PlanBuilder::Within) may lie elsewhere.
inline Ref InputOfRoot(const PlanBuilder& b) {
  const CollectiveSpec& spec = b.spec();
  if (b.rank() == spec.root) return b.in();
  return Ref{.space = spec.in_place ? Space::kOut : Space::kIn,
             .dtype = spec.dtype,
             .bytes = InputCount(spec, spec.root, b.size()) * SizeOf(spec.dtype)}
      .At(spec.root);
}
inline Ref OutputOfRoot(const PlanBuilder& b) {
  const CollectiveSpec& spec = b.spec();
  if (b.rank() == spec.root) return b.out();
  return Ref{.dtype = spec.dtype, .bytes = OutputCount(spec, spec.root, b.size()) * SizeOf(spec.dtype)}.At(spec.root);
}

// Chunk `index` of `parts`, cut at cache lines so that no two ranks ever write to one line. The last chunks may be
// empty.
inline Range CacheLineChunk(DType dtype, std::int64_t count, int parts, int index) {
  const std::int64_t line = kCacheLineBytes / SizeOf(dtype);
  const Range lines = ChunkOf(DivideRoundingUp(count, line), parts, index);
  const std::int64_t begin = std::min(lines.begin * line, count);
  return {begin, std::min((lines.begin + lines.count) * line, count) - begin};
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_MAPPED_PEERS_H_
