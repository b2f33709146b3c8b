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
#include "tutti/schedules/pairwise_exchange.h"
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

// The seconds in which every rank sends every other one the pieces of a chunk of `elements` elements, without the way
// of the last message.
inline double SecondsToSend(const PlanBuilder& b, const CodecChoice& codec, std::int64_t elements,
                            std::int64_t pieces) {
  const LinkModel& link = b.options().model().between_nodes;
  const std::int64_t bytes = codec.codec->encoded_bytes(elements / pieces, codec.options);
  const double message_s = SendingSeconds(link, bytes) + TransferSeconds(link, bytes) + ReceivingSeconds(link, bytes);
  return static_cast<double>((b.size() - 1) * pieces) * message_s;
}

// Whether the bucket takes less time in one shot than in two, between nodes that have one rank each; elsewhere the way
// is short. Two shots are taken always
//   - with error feedback: the second shot has a residual, and checkpoints must not depend on what a link is measured
//     to take;
//   - with a cast: what a cast gives does not depend on links, nor, where it rounds to nearest, on the length of
//     buckets, which autotuning changes;
//   - where the message of a whole bucket would not be shorter than the bucket, although those of its chunks are.
inline bool OneShotIsFaster(const PlanBuilder& b, const CompressionOptions& options) {
  const PlanOptions& plan = b.options();
  const CodecChoice& codec = options.codec;
  if (options.error_feedback || codec.codec->linear.has_value()) return false;
  if (!schedules::FewRanksBetweenNodes(b.size(), plan).ok() || plan.has_hierarchy()) return false;
  if (!plan.native.collectives.empty()) return false;
  const std::int64_t count = b.spec().count;
  if (codec.codec->encoded_bytes(count, codec.options) >= count * SizeOf(b.spec().dtype)) return false;

  const double n = b.size();
  const CostModel& model = plan.model();
  const double latency_s = model.between_nodes.latency_s;
  // The time in which a rank reads or writes the bucket once. It does so 1 + n times in one shot, and 3 + 1/n times in
  // two, while messages travel.
  const double pass_s = static_cast<double>(count * SizeOf(DType::kF32)) / model.memory_bytes_per_s;

  // The first piece is encoded before anything travels, and all versions of the last one are decoded after it has come.
  const std::int64_t pieces = OneShotPieces(b, codec).count();
  const double piece_s = pass_s / static_cast<double>(pieces);
  const double one_shot_s =
      latency_s + (1 + n) * piece_s + std::max(SecondsToSend(b, codec, count, pieces), (1 + n) * pass_s);

  // While messages of the first shot still come, those of the second leave: the way of the latter is hidden if it is
  // shorter than the time for which the former travel.
  const std::int64_t chunk_pieces = TwoShotPieces(b, codec).count();
  const double chunk_piece_s = pass_s / n / static_cast<double>(chunk_pieces);
  const double shot_s =
      std::max(SecondsToSend(b, codec, ChunkOf(count, b.size(), 0).count, chunk_pieces), (3 + 1 / n) / 2 * pass_s);
  const double last_sum_s = latency_s + (n + 1) * chunk_piece_s + shot_s / static_cast<double>(chunk_pieces);
  const double two_shots_s = latency_s + 2 * chunk_piece_s + shot_s + std::max(shot_s, last_sum_s);
  return one_shot_s < two_shots_s;
}

// Replaces the bucket of builder `b`, which is in place, by its sum or average over the ranks.
inline void CompressedAllReduce(PlanBuilder& b, const CompressionOptions& options) {
  if (!Shrinks(b.spec(), b.size(), options.codec)) return BuildSelected(b);
  if (OneShotIsFaster(b, options)) return OneShotAllReduce(b, options);
  TwoShotAllReduce(b, options);
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_COMPRESSED_ALL_REDUCE_H_
