// The options of a compressed all_reduce (one_shot.h, two_shot.h), and the pieces in which elements are encoded.
#ifndef TUTTI_ALGORITHMS_COMPRESSION_H_
#define TUTTI_ALGORITHMS_COMPRESSION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tutti/cost_model.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"

namespace tutti {

struct CompressionOptions {
  CodecChoice codec;
  bool average = true;
  bool error_feedback = false;
};

// Elements are encoded alike in one message and in several if they are cut at multiples of this number of elements; 0:
// only in one message. At random the codec rounds an element by its place in its message.
inline std::int64_t UnitOf(const CodecChoice& codec) {
  if (codec.options.rounding == Rounding::kStochastic) return 0;
  return codec.codec->linear.has_value() ? 1 : codec.options.block;
}

// Where elements are cut into pieces, each of which is a message of the codec: at multiples of UnitOf(codec), so that
// neither links nor the length of segments change what is encoded.
class Pieces {
 public:
  // Pieces of chunks of up to `elements` elements. Every rank sends every other one a chunk in each of so many
  // `exchanges`, for which the rank reads or writes the values of a chunk `passes` times.
  Pieces(const PlanBuilder& b, const CodecChoice& codec, std::int64_t elements, int exchanges, int passes) {
    const std::int64_t unit = UnitOf(codec);
    if (unit == 0 || b.options().all_mapped() || !b.options().native.collectives.empty()) return;
    const std::int64_t most = std::max(elements / SegmentOf(b), std::int64_t{1});
    const std::int64_t wanted =
        std::clamp<std::int64_t>(std::llround(Wanted(b, codec, elements, exchanges, passes)), 1, most);
    Cut(elements, std::max(elements / wanted / unit, std::int64_t{1}) * unit);
  }
  // One piece for each segment of `elements` elements.
  Pieces(const PlanBuilder& b, const CodecChoice& codec, std::int64_t elements) {
    if (UnitOf(codec) > 0) Cut(elements, RoundUp(SegmentOf(b), UnitOf(codec)));
  }

  std::int64_t count() const { return count_; }
  // Piece `piece` of a chunk of so many elements. The last piece is longer than the others, up to twice as long: a
  // short one more would be sent unchanged by the codec.
  Range Of(std::int64_t chunk_elements, std::int64_t piece) const {
    if (count_ == 1) return {0, chunk_elements};
    const std::int64_t begin = piece * length_;
    return {begin, piece + 1 < count_ ? length_ : chunk_elements - begin};
  }

 private:
  static std::int64_t SegmentOf(const PlanBuilder& b) { return b.options().segment_bytes / SizeOf(DType::kF32); }

  void Cut(std::int64_t elements, std::int64_t length) {
    length_ = length;
    count_ = std::max(elements / length_, std::int64_t{1});
  }

  // The number of pieces with which the ends of the pipeline, where one piece is computed and nothing travels, take a
  // 400th of the time on the wire. On slow links that is less than one piece: a message that is announced while others
  // are under way waits behind them.
  static double Wanted(const PlanBuilder& b, const CodecChoice& codec, std::int64_t chunk, int exchanges, int passes) {
    const CostModel& model = b.options().model();
    const LinkModel& link = b.options().one_node() ? model.within_node : model.between_nodes;
    const double compute_s = passes * static_cast<double>(chunk * SizeOf(DType::kF32)) / model.memory_bytes_per_s;
    const std::int64_t message = codec.codec->encoded_bytes(chunk, codec.options);
    const double wire_s =
        static_cast<double>(exchanges) * (b.size() - 1) * static_cast<double>(message) / link.bytes_per_s;
    return 400 * compute_s / wire_s;
  }

  std::int64_t length_ = 0;
  std::int64_t count_ = 1;
};

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_COMPRESSION_H_
