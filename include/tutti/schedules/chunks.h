// Chunks and blocks: the parts of a buffer, one per rank.
#ifndef TUTTI_SCHEDULES_CHUNKS_H_
#define TUTTI_SCHEDULES_CHUNKS_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tutti/plan_builder.h"

namespace tutti::schedules {

// Chunks first … first+length-1 (length ≥ 1) of `whole`, which is cut into n nearly equal chunks.
inline Ref RunOfChunks(const Ref& whole, int n, int first, int length) {
  const std::int64_t begin = ChunkOf(whole.count(), n, first).begin;
  const Range last = ChunkOf(whole.count(), n, first + length - 1);
  return whole.Elements(begin, last.begin + last.count - begin);
}

// The n nearly equal chunks of `whole`; where n divides its count, as in the whole input of reduce_scatter or the whole
// output of all_gather, they are the equal blocks of the ranks.
inline std::vector<Ref> ChunksOf(const Ref& whole, int n) {
  std::vector<Ref> chunks;
  chunks.reserve(static_cast<std::size_t>(n));
  for (int c = 0; c < n; ++c) chunks.push_back(RunOfChunks(whole, n, c, 1));
  return chunks;
}

// The number of elements that a segment holds, at least 1.
inline std::int64_t ElementsPerSegment(const PlanBuilder& b, DType dtype) {
  return std::max<std::int64_t>(b.options().segment_bytes / SizeOf(dtype), 1);
}

// How many of `p` chunks, of which `longest` is one of the longest, travel in one message where runs of chunks are
// halved and doubled: as many as a segment holds, but a power of two, because the runs, and p, are powers of two, too.
inline int ChunksPerPiece(const PlanBuilder& b, const Ref& longest, int p) {
  const auto held = static_cast<std::uint64_t>(b.options().segment_bytes / std::max<std::int64_t>(longest.bytes, 1));
  return static_cast<int>(std::bit_floor(std::clamp<std::uint64_t>(held, 1, static_cast<std::uint64_t>(p))));
}

// Elements begin … begin+length-1 of `chunk`, as far as the chunk has them: the slices of nearly equal chunks have
// nearly equal lengths.
inline Ref SliceOf(const Ref& chunk, std::int64_t begin, std::int64_t length) {
  return chunk.Elements(std::min(begin, chunk.count()), std::clamp<std::int64_t>(chunk.count() - begin, 0, length));
}

inline std::vector<Ref> SlicesOf(const std::vector<Ref>& chunks, std::int64_t begin, std::int64_t length) {
  std::vector<Ref> slices;
  slices.reserve(chunks.size());
  for (const Ref& chunk : chunks) slices.push_back(SliceOf(chunk, begin, length));
  return slices;
}

// The blocks of counts[0], counts[1] … elements that lie in `whole`, one after the other.
inline std::vector<Ref> PackedBlocks(const Ref& whole, absl::Span<const std::int64_t> counts) {
  std::vector<Ref> blocks;
  blocks.reserve(counts.size());
  std::int64_t first = 0;
  for (const std::int64_t count : counts) {
    blocks.push_back(whole.Elements(first, count));
    first += count;
  }
  return blocks;
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_CHUNKS_H_
