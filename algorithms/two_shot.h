// The compressed all_reduce of a bucket, in two exchanges (shots) whatever the number of ranks n:
//
//   1. Every rank encodes every chunk and sends chunk r to rank r.
//   2. Rank r decodes all versions of chunk r, adds them up in fp32, in rank order, and divides by n (average).
//   3. Rank r encodes its result and sends it to every rank. All decode it, rank r too: all end with the same bits.
//
// Over messages, chunks travel piece by piece, as a pipeline: pieces are encoded, on the wire, added up and decoded at
// the same time.
//
// With error feedback every encoder adds what its last message lost (the residual) to what it encodes, and keeps what
// the new message loses (Karimireddy et al., 2019, https://arxiv.org/abs/1901.09847; in both shots as in DoubleSqueeze,
// https://arxiv.org/abs/1905.05957).
#ifndef TUTTI_ALGORITHMS_TWO_SHOT_H_
#define TUTTI_ALGORITHMS_TWO_SHOT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/compression.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/selector.h"

namespace tutti {

// This rank's encoded version of every chunk, and access to the peers' versions: they are moved by native collectives
// where these are predicted to be the fastest, or else read where they lie when peers' memory is mapped, or received.
class EncodedChunks {
 public:
  EncodedChunks(PlanBuilder& b, const CodecChoice& codec, const Pieces& pieces)
      : b_(b), codec_(codec), pieces_(pieces), parts_(static_cast<std::size_t>(b.size())) {
    const auto elements_of = [&](int chunk) { return ChunkOf(b_.spec().count, b_.size(), chunk).count; };
    std::vector<std::int64_t> bytes(parts_.size());
    for (int i = 0; i < b.size(); ++i) bytes[i] = codec.codec->encoded_bytes(elements_of(i), codec.options);
    const std::int64_t longest = *std::max_element(bytes.begin(), bytes.end());
    const std::int64_t slot = RoundUp(longest, kCacheLineBytes);
    // A rank without a chunk, as the last one may be, would get messages that it has no use for.
    if (elements_of(b.size() - 1) > 0 && MovesNatively(slot)) {
      slot_ = slot;
      slots_ = b.Scratch(DType::kU8, slot * b.size());
      for (int i = 0; i < b.size(); ++i) parts_[i] = {slots_.Elements(i * slot_, bytes[i])};
      return;
    }
    for (int i = 0; i < b.size(); ++i) parts_[i] = ScratchFor(elements_of(i));
  }

  // Where this rank encodes a piece of a chunk; after AwaitChunks, where the owner's version of the chunk is.
  const Ref& operator()(int chunk, std::int64_t piece) const { return parts_[chunk][piece]; }
  // After AwaitVersions: where the version of this rank's own chunk is that `rank` has encoded.
  const Ref& Version(Rank rank, std::int64_t piece) const { return versions_[rank][piece]; }

  // Lets messages come: every rank's version of this rank's own chunk, or every rank's own chunk. To be called before
  // anything is computed, because what comes earlier would have to be copied.
  void ReceiveVersions() {
    versions_.assign(b_.size(), parts_[b_.rank()]);
    if (!UsesMessages()) return;
    for (Rank rank = 0; rank < b_.size(); ++rank) {
      if (rank != b_.rank()) versions_[rank] = ScratchFor(ChunkOf(b_.spec().count, b_.size(), b_.rank()).count);
    }
    ReceiveFromAll(versions_);
  }
  void ReceiveChunks() {
    if (UsesMessages()) ReceiveFromAll(parts_);
  }

  // Sends a piece of a chunk, which this rank has encoded, to a peer. Without messages, peers get it otherwise.
  void Send(Rank to, int chunk, std::int64_t piece) {
    if (UsesMessages() && to != b_.rank()) b_.Send(to, parts_[chunk][piece]);
  }

  // To be called when this rank has encoded all chunks.
  void AwaitVersions() {
    if (slot_ > 0) {
      const Ref received = b_.Scratch(DType::kU8, slot_ * b_.size());
      b_.Native(Call(Collective::kAllToAll, slot_), slots_, received);
      for (Rank rank = 0; rank < b_.size(); ++rank) {
        versions_[rank] = {received.Elements(rank * slot_, parts_[b_.rank()][0].count())};
      }
    } else if (b_.options().all_mapped()) {
      MeetInPlace(versions_);
    }
  }
  // To be called when this rank has encoded its own chunk.
  void AwaitChunks() {
    if (slot_ > 0) {
      b_.Native(Call(Collective::kAllGather, slot_), slots_.Elements(b_.rank() * slot_, slot_), slots_);
    } else if (b_.options().all_mapped()) {
      MeetInPlace(parts_);
    }
  }

 private:
  // The call that moves one slot from every rank to every rank.
  static CollectiveSpec Call(Collective collective, std::int64_t slot) {
    return {.collective = collective, .dtype = DType::kU8, .count = slot};
  }

  bool MovesNatively(std::int64_t slot) const {
    return IsNativeChosen(Call(Collective::kAllToAll, slot), b_.size(), b_.options()) &&
           IsNativeChosen(Call(Collective::kAllGather, slot), b_.size(), b_.options());
  }
  bool UsesMessages() const { return slot_ == 0 && !b_.options().all_mapped(); }

  std::vector<Ref> ScratchFor(std::int64_t chunk_elements) {
    std::vector<Ref> parts;
    for (std::int64_t piece = 0; piece < pieces_.count(); ++piece) {
      parts.push_back(b_.Message(pieces_.Of(chunk_elements, piece).count, codec_));
    }
    return parts;
  }

  void ReceiveFromAll(const std::vector<std::vector<Ref>>& to) {
    for (int distance = 1; distance < b_.size(); ++distance) {
      const Rank from = (b_.rank() + b_.size() - distance) % b_.size();
      for (const Ref& piece : to[from]) b_.Recv(from, piece);
    }
  }

  void MeetInPlace(std::vector<std::vector<Ref>>& refs) {
    b_.Signal();
    b_.WaitAll();
    for (Rank rank = 0; rank < b_.size(); ++rank) {
      for (Ref& ref : refs[rank]) ref = ref.At(rank);
    }
  }

  PlanBuilder& b_;
  const CodecChoice& codec_;
  const Pieces& pieces_;
  std::vector<std::vector<Ref>> parts_;     // by chunk and piece
  std::vector<std::vector<Ref>> versions_;  // by rank and piece
  // For native collectives, which move blocks of one length: slots of cache lines, one for each chunk, as long as the
  // longest chunk. 0: none.
  std::int64_t slot_ = 0;
  Ref slots_;
};

// message ← Q(values), Q being the codec. With a residual: values += residual, message ← Q(values), residual ← values -
// what the message decodes to.
inline void EncodeWithFeedback(PlanBuilder& b, const Ref& message, const Ref& values, const CodecChoice& codec,
                               const std::optional<Ref>& residual) {
  if (residual.has_value()) b.Reduce(values, {values, *residual}, ReduceOp::kSum);
  b.Encode(message, values, codec);
  if (!residual.has_value()) return;
  b.Decode(*residual, message, codec);
  b.Remainder(*residual, values, *residual);
}

// A chunk is read, its sum is read and written, and the chunk is written again.
inline Pieces TwoShotPieces(const PlanBuilder& b, const CodecChoice& codec) {
  return Pieces(b, codec, ChunkOf(b.spec().count, b.size(), 0).count, /*exchanges=*/2, /*passes=*/3);
}

// Replaces the bucket of builder `b`, which is in place, by its sum or average over the ranks, several.
inline void TwoShotAllReduce(PlanBuilder& b, const CompressionOptions& options) {
  const CodecChoice& codec = options.codec;
  const Ref bucket = b.out();
  // Codecs work on f32: a bucket of a 16-bit type is widened before the exchange and rounded once after it.
  const Ref wide = bucket.dtype == DType::kF32 ? bucket : b.Scratch(DType::kF32, bucket.count());
  const Pieces pieces = TwoShotPieces(b, codec);
  const auto chunk = [&b](const Ref& whole, int i) {
    const Range range = ChunkOf(whole.count(), b.size(), i);
    return whole.Elements(range.begin, range.count);
  };
  const auto piece_of = [&pieces](const Ref& chunk_of, std::int64_t p) {
    const Range range = pieces.Of(chunk_of.count(), p);
    return chunk_of.Elements(range.begin, range.count);
  };
  const auto part = [&](const Ref& whole, int i, std::int64_t p) { return piece_of(chunk(whole, i), p); };
  const Range own = ChunkOf(bucket.count(), b.size(), b.rank());
  std::optional<Ref> gradient_residual;
  std::optional<Ref> sum_residual;
  if (options.error_feedback) {
    gradient_residual = b.Residual("gradient", DType::kF32, bucket.count(), /*first_element=*/0,
                                   /*divisor=*/options.average ? b.world_size() : 1);
    sum_residual = b.Residual("sum", DType::kF32, own.count, own.begin);
  }

  EncodedChunks gradients(b, codec, pieces);
  EncodedChunks results(b, codec, pieces);
  gradients.ReceiveVersions();
  results.ReceiveChunks();
  const auto encode_gradients = [&](int i, std::int64_t p) {
    b.Copy(part(wide, i, p), part(bucket, i, p));
    EncodeWithFeedback(b, gradients(i, p), part(wide, i, p), codec,
                       gradient_residual.has_value() ? std::optional(part(*gradient_residual, i, p)) : std::nullopt);
  };
  // At any time, each peer is sent to by one rank. The last peer's pieces take turns with those of this rank's own
  // chunk, which nobody waits for.
  for (int distance = 1; distance < b.size(); ++distance) {
    const Rank to = (b.rank() + distance) % b.size();
    for (std::int64_t p = 0; p < pieces.count(); ++p) {
      encode_gradients(to, p);
      gradients.Send(to, to, p);
      if (distance == b.size() - 1) encode_gradients(b.rank(), p);
    }
  }
  gradients.AwaitVersions();
  for (std::int64_t p = 0; p < pieces.count(); ++p) {
    const Ref sum = part(wide, b.rank(), p);
    for (Rank rank = 0; rank < b.size(); ++rank) b.Decode(sum, gradients.Version(rank, p), codec, rank > 0);
    if (options.average) b.Scale(sum, sum, b.world_size());
    EncodeWithFeedback(b, results(b.rank(), p), sum, codec,
                       sum_residual.has_value() ? std::optional(piece_of(*sum_residual, p)) : std::nullopt);
    for (int distance = 1; distance < b.size(); ++distance) {
      results.Send((b.rank() + distance) % b.size(), b.rank(), p);
    }
  }
  results.AwaitChunks();
  for (std::int64_t p = 0; p < pieces.count(); ++p) {
    for (int i = 0; i < b.size(); ++i) {
      b.Decode(part(wide, i, p), results(i, p), codec);
      b.Copy(part(bucket, i, p), part(wide, i, p));
    }
  }
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_TWO_SHOT_H_
