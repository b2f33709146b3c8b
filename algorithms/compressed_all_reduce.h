// The compressed all_reduce of a bucket: in one exchange or in two, whichever is predicted to take less time.
#ifndef TUTTI_ALGORITHMS_COMPRESSED_ALL_REDUCE_H_
#define TUTTI_ALGORITHMS_COMPRESSED_ALL_REDUCE_H_

#include <algorithm>
#include <cstdint>

#include "algorithms/compression.h"
#include "algorithms/one_shot.h"
#include "algorithms/two_shot.h"
#include "tutti/cost_model.h"
#include "tutti/plan_builder.h"
#include "tutti/selector.h"

namespace tutti {

// Whether encoding would shrink the bucket. A bucket that is too small is reduced losslessly, as is every bucket of a
// world of one.
inline bool Shrinks(const CollectiveSpec& bucket, int size, const CodecChoice& codec) {
  std::int64_t encoded = 0;
  for (Rank rank = 0; rank < size; ++rank) {
    encoded += codec.codec->encoded_bytes(ChunkOf(bucket.count, size, rank).count, codec.options);
  }
  return size > 1 && encoded < bucket.count * SizeOf(bucket.dtype);
}

// The seconds that `exchanges` of chunks of `elements` elements take, which go to every other rank, beside the way of
// the last message, while ranks read or write `passes` times as much as the bucket.
inline double ExchangeSeconds(const PlanBuilder& b, const CodecChoice& codec, std::int64_t elements, int exchanges,
                              double passes) {
  const CostModel& model = ModelOf(b);
  const LinkModel& link = model.between_nodes;
  const Pieces pieces(b, codec, elements, exchanges);
  const auto count = static_cast<double>(pieces.count());
  const std::int64_t bytes = codec.codec->encoded_bytes(elements / pieces.count(), codec.options);
  const double message_s = SendingSeconds(link, bytes) + TransferSeconds(link, bytes) + ReceivingSeconds(link, bytes);
  const double messages_s = exchanges * (b.size() - 1) * count * message_s;
  const double compute_s =
      passes * static_cast<double>(b.spec().count * SizeOf(DType::kF32)) / model.memory_bytes_per_s;
  return std::max(messages_s, compute_s) + std::min(messages_s, compute_s) / count;
}

// Whether the bucket takes less time in one shot than in two, between nodes that have one rank each; elsewhere the way
// is short. The residual of the second shot is part of checkpoints, which must not depend on what a link is measured to
// take: with error feedback there are always two.
inline bool OneShotIsFaster(const PlanBuilder& b, const CompressionOptions& options) {
  constexpr int kMostRanks = 64;  // all of which send to one rank at once
  const PlanOptions& plan = b.options();
  if (options.error_feedback || b.size() > kMostRanks) return false;
  if (plan.one_node() || plan.has_hierarchy() || !plan.native.collectives.empty()) return false;
  const double n = b.size();
  const std::int64_t chunk = ChunkOf(b.spec().count, b.size(), 0).count;
  const double latency_s = ModelOf(b).between_nodes.latency_s;
  const double one_shot_s = ExchangeSeconds(b, options.codec, b.spec().count, 1, /*passes=*/1 + n);
  const double two_shots_s = ExchangeSeconds(b, options.codec, chunk, 2, /*passes=*/3 + 1 / n);
  // While the messages of the first shot still come, those of the second shot leave, and the way of all but the last of
  // these is hidden.
  const auto pieces = static_cast<double>(Pieces(b, options.codec, chunk, 2).count());
  return one_shot_s < std::max(two_shots_s, latency_s + two_shots_s * (1 + 1 / pieces) / 2);
}

// Replaces the bucket of builder `b`, which is in place, by its sum or average over the ranks.
inline void CompressedAllReduce(PlanBuilder& b, const CompressionOptions& options) {
  if (!Shrinks(b.spec(), b.size(), options.codec)) return BuildSelected(b);
  if (OneShotIsFaster(b, options)) return OneShotAllReduce(b, options);
  TwoShotAllReduce(b, options);
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_COMPRESSED_ALL_REDUCE_H_
