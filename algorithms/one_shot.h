// The compressed all_reduce of a bucket in one exchange (shot):
//
//   1. Every rank encodes its whole bucket and sends it to all other ranks.
//   2. Every rank decodes all versions of the bucket, its own too, adds them up in fp32, in rank order, and divides by
//      the number of ranks n (average): all end with the same bits.
//
// Each rank sends n-1 buckets where two shots (two_shot.h) send 2(n-1)/n, and decodes n buckets where two shots decode
// two: but messages wait only once for the way from node to node, and an element is encoded once. With two ranks both
// send the same number of bytes.
//
// A bucket travels piece by piece, as a pipeline: pieces are encoded, on the wire and decoded at the same time.
#ifndef TUTTI_ALGORITHMS_ONE_SHOT_H_
#define TUTTI_ALGORITHMS_ONE_SHOT_H_

#include <cstdint>
#include <vector>

#include "algorithms/compression.h"
#include "tutti/plan_builder.h"

namespace tutti {

// A bucket is read, and written once for each version of it.
inline Pieces OneShotPieces(const PlanBuilder& b, const CodecChoice& codec) {
  return Pieces(b, codec, b.spec().count, /*exchanges=*/1, /*passes=*/1 + b.size());
}

// Replaces the bucket of builder `b`, which is in place, by its sum or average over the ranks, several, which send
// messages. There is no error feedback: `options.error_feedback` is false.
inline void OneShotAllReduce(PlanBuilder& b, const CompressionOptions& options) {
  const CodecChoice& codec = options.codec;
  const Ref bucket = b.out();
  // Codecs work on f32: a bucket of a 16-bit type is widened before the exchange and rounded once after it.
  const Ref wide = bucket.dtype == DType::kF32 ? bucket : b.Scratch(DType::kF32, bucket.count());
  const Pieces pieces = OneShotPieces(b, codec);
  const auto part = [&](const Ref& whole, std::int64_t piece) {
    const Range range = pieces.Of(whole.count(), piece);
    return whole.Elements(range.begin, range.count);
  };

  std::vector<std::vector<Ref>> versions(static_cast<std::size_t>(b.size()));  // by rank and piece
  for (std::vector<Ref>& version : versions) {
    for (std::int64_t p = 0; p < pieces.count(); ++p) version.push_back(b.Message(part(wide, p).count(), codec));
  }
  const std::vector<Ref>& own = versions[b.rank()];
  // Receives come before anything that is computed, because what comes earlier would have to be copied.
  for (std::int64_t p = 0; p < pieces.count(); ++p) {
    for (int distance = 1; distance < b.size(); ++distance) {
      const Rank from = (b.rank() + b.size() - distance) % b.size();
      b.Recv(from, versions[from][p]);
    }
  }
  for (std::int64_t p = 0; p < pieces.count(); ++p) {
    b.Copy(part(wide, p), part(bucket, p));
    b.Encode(own[p], part(wide, p), codec);
    for (int distance = 1; distance < b.size(); ++distance) b.Send((b.rank() + distance) % b.size(), own[p]);
  }
  for (std::int64_t p = 0; p < pieces.count(); ++p) {
    const Ref sum = part(wide, p);
    for (Rank rank = 0; rank < b.size(); ++rank) b.Decode(sum, versions[rank][p], codec, rank > 0);
    if (options.average) b.Scale(sum, sum, b.world_size());
    b.Copy(part(bucket, p), sum);
  }
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_ONE_SHOT_H_
