// The compressed all_reduce of a bucket, in two exchanges (shots) whatever the number of ranks n:
//
//   1. Every rank encodes every chunk and sends chunk r to rank r.
//   2. Rank r decodes all versions of chunk r, adds them up in fp32, in rank order, and divides by n (average).
//   3. Rank r encodes its result and sends it to every rank. All decode it, rank r too: all end with the same bits.
//
// With error feedback every encoder adds what its last message lost (the residual) to what it encodes, and keeps what
// the new message loses (Karimireddy et al., 2019, https://arxiv.org/abs/1901.09847; in both shots as in DoubleSqueeze,
// https://arxiv.org/abs/1905.05957).
#ifndef TUTTI_ALGORITHMS_TWO_SHOT_H_
#define TUTTI_ALGORITHMS_TWO_SHOT_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/plan_builder.h"
#include "tutti/selector.h"

namespace tutti {

struct TwoShotOptions {
  CodecChoice codec;
  bool average = true;
  bool error_feedback = false;
};

// Whether encoding would shrink the bucket. A bucket that is too small is reduced losslessly, as is every bucket of a
// world of one.
inline bool Shrinks(const CollectiveSpec& bucket, int size, const CodecChoice& codec) {
  std::int64_t encoded = 0;
  for (Rank rank = 0; rank < size; ++rank) {
    encoded += codec.codec->encoded_bytes(ChunkOf(bucket.count, size, rank).count, codec.options);
  }
  return size > 1 && encoded < bucket.count * SizeOf(bucket.dtype);
}

// This rank's encoded version of every chunk, and access to the peers' versions: they are moved by native collectives
// where these are predicted to be the fastest, or else read where they lie when peers' memory is mapped, or received.
class EncodedChunks {
 public:
  EncodedChunks(PlanBuilder& b, const CodecChoice& codec) : b_(b) {
    std::vector<std::int64_t> bytes;
    for (int i = 0; i < b.size(); ++i) {
      const std::int64_t count = ChunkOf(b.spec().count, b.size(), i).count;
      bytes.push_back(codec.codec->encoded_bytes(count, codec.options));
    }
    const auto [shortest, longest] = std::minmax_element(bytes.begin(), bytes.end());
    const std::int64_t slot = (*longest + kLine - 1) / kLine * kLine;
    // A rank without a chunk would get messages that it has no use for.
    if (*shortest > 0 && MovesNatively(slot)) {
      slot_ = slot;
      slots_ = b.Scratch(DType::kU8, slot * b.size());
    }
    for (int i = 0; i < b.size(); ++i) {
      chunks_.push_back(slot_ > 0 ? slots_.Elements(i * slot_, bytes[i]) : b.Scratch(DType::kU8, bytes[i]));
    }
  }

  const Ref& operator[](int i) const { return chunks_[i]; }

  // To be called when this rank has written all chunks. Returns every rank's version of this rank's own chunk, in rank
  // order.
  std::vector<Ref> AllToAll() {
    std::vector<Ref> versions(b_.size(), chunks_[b_.rank()]);
    if (slot_ > 0) {
      const Ref received = b_.Scratch(DType::kU8, slot_ * b_.size());
      b_.Native(Call(Collective::kAllToAll, slot_), slots_, received);
      for (Rank rank = 0; rank < b_.size(); ++rank) {
        versions[rank] = received.Elements(rank * slot_, chunks_[b_.rank()].count());
      }
      return versions;
    }
    if (b_.options().peers_mapped) return InPlace(versions);
    for (int distance = 1; distance < b_.size(); ++distance) {
      const Rank to = (b_.rank() + distance) % b_.size();
      const Rank from = (b_.rank() + b_.size() - distance) % b_.size();
      versions[from] = b_.Scratch(DType::kU8, chunks_[b_.rank()].count());
      b_.Send(to, chunks_[to]);
      b_.Recv(from, versions[from]);
    }
    return versions;
  }

  // To be called when this rank has written its own chunk. Returns every rank's own chunk.
  std::vector<Ref> AllGather() {
    if (slot_ > 0) {
      b_.Native(Call(Collective::kAllGather, slot_), slots_.Elements(b_.rank() * slot_, slot_), slots_);
      return chunks_;
    }
    if (b_.options().peers_mapped) return InPlace(chunks_);
    for (int distance = 1; distance < b_.size(); ++distance) {
      const Rank from = (b_.rank() + b_.size() - distance) % b_.size();
      b_.Send((b_.rank() + distance) % b_.size(), chunks_[b_.rank()]);
      b_.Recv(from, chunks_[from]);
    }
    return chunks_;
  }

 private:
  static constexpr std::int64_t kLine = 64;

  // The call that moves one slot from every rank to every rank.
  static CollectiveSpec Call(Collective collective, std::int64_t slot) {
    return {.collective = collective, .dtype = DType::kU8, .count = slot};
  }

  bool MovesNatively(std::int64_t slot) const {
    return IsNativeChosen(Call(Collective::kAllToAll, slot), b_.size(), b_.options()) &&
           IsNativeChosen(Call(Collective::kAllGather, slot), b_.size(), b_.options());
  }

  std::vector<Ref> InPlace(std::vector<Ref> refs) {
    b_.Signal();
    b_.WaitAll();
    for (Rank rank = 0; rank < b_.size(); ++rank) refs[rank] = refs[rank].At(rank);
    return refs;
  }

  PlanBuilder& b_;
  std::vector<Ref> chunks_;
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

// Replaces the bucket of builder `b`, which is in place, by its sum or average over the ranks.
inline void TwoShotAllReduce(PlanBuilder& b, const TwoShotOptions& options) {
  const CodecChoice& codec = options.codec;
  if (!Shrinks(b.spec(), b.size(), codec)) {
    BuildSelected(b);
    return;
  }
  const Ref bucket = b.out();
  // Codecs work on f32: a bucket of a 16-bit type is widened before the exchange and rounded once after it.
  const Ref wide = bucket.dtype == DType::kF32 ? bucket : b.Scratch(DType::kF32, bucket.count());
  auto chunk = [&b](const Ref& whole, int i) {
    const Range range = ChunkOf(whole.count(), b.size(), i);
    return whole.Elements(range.begin, range.count);
  };
  const Ref sum = chunk(wide, b.rank());
  std::optional<Ref> gradient_residual;
  std::optional<Ref> sum_residual;
  if (options.error_feedback) {
    gradient_residual = b.Residual("gradient", DType::kF32, bucket.count(), /*first_element=*/0,
                                   /*divisor=*/options.average ? b.world_size() : 1);
    sum_residual = b.Residual("sum", DType::kF32, sum.count(), ChunkOf(bucket.count(), b.size(), b.rank()).begin);
  }

  EncodedChunks gradients(b, codec);
  for (int i = 0; i < b.size(); ++i) {
    b.Copy(chunk(wide, i), chunk(bucket, i));
    EncodeWithFeedback(b, gradients[i], chunk(wide, i), codec,
                       gradient_residual.has_value() ? std::optional(chunk(*gradient_residual, i)) : std::nullopt);
  }
  const std::vector<Ref> versions = gradients.AllToAll();
  for (Rank rank = 0; rank < b.size(); ++rank) b.Decode(sum, versions[rank], codec, /*accumulate=*/rank > 0);
  if (options.average) b.Scale(sum, sum, b.world_size());

  EncodedChunks results(b, codec);
  EncodeWithFeedback(b, results[b.rank()], sum, codec, sum_residual);
  const std::vector<Ref> everybodys = results.AllGather();
  for (int i = 0; i < b.size(); ++i) {
    b.Decode(chunk(wide, i), everybodys[i], codec);
    b.Copy(chunk(bucket, i), chunk(wide, i));
  }
}

}  // namespace tutti

#endif  // TUTTI_ALGORITHMS_TWO_SHOT_H_
