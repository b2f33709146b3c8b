// bytegrad: every rank ends with (1/n) Σ g, exchanged in 8 bits per element: a two-shot all_reduce of encoded chunks.
//
//   1. Encode every chunk of the bucket; rank r gets everybody's chunk r.
//   2. Rank r decodes them, adds them up in fp32, in rank order, and divides by n.
//   3. Rank r encodes its result; everybody gets it and decodes it: the owner too, so that replicas stay bit-equal.
//
// Two lossy steps whatever n. After Bagua's ByteGrad (https://arxiv.org/abs/2107.01499).
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/algorithm.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"average", "true", "true | false", "divide the sum of the gradients by the number of ranks", CheckListed},
    {"hierarchical", "true", "true | false", "reduce losslessly inside each node; on one node it changes nothing",
     CheckListed},
};

// A bucket so small that it would not shrink is reduced losslessly; so is every bucket of a world of one.
bool Shrinks(const CollectiveSpec& bucket, int size, const CodecChoice& codec) {
  std::int64_t encoded = 0;
  for (Rank rank = 0; rank < size; ++rank) {
    encoded += codec.codec->encoded_bytes(ChunkOf(bucket.count, size, rank).count, codec.options);
  }
  return size > 1 && encoded < bucket.count * SizeOf(bucket.dtype);
}

absl::Status Supports(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan) {
  if (bucket.dtype == DType::kF64 || !IsFloating(bucket.dtype)) {
    return absl::UnimplementedError(absl::StrCat("gradients of ", Name(bucket.dtype),
                                                 " cannot be encoded; valid: f32, f16, bf16 (use gradient_allreduce)"));
  }
  if (strategy.flag("hierarchical") && !plan.one_node) {
    return absl::UnimplementedError("hierarchical=true needs all ranks on one node; use hierarchical=false");
  }
  return SelectSchedule(bucket, size, plan).status();
}

// One encoded version of every chunk, and the way to those of the peers: read where they lie when peers' memory is
// mapped, received otherwise.
class EncodedChunks {
 public:
  EncodedChunks(PlanBuilder& b, const CodecChoice& codec) : b_(b) {
    for (int i = 0; i < b.size(); ++i) {
      const std::int64_t count = ChunkOf(b.spec().count, b.size(), i).count;
      chunks_.push_back(b.Scratch(DType::kU8, codec.codec->encoded_bytes(count, codec.options)));
    }
  }

  const Ref& operator[](int i) const { return chunks_[i]; }

  // Once every rank has written all chunks: everybody's version of this rank's own, in rank order.
  std::vector<Ref> AllToAll() {
    std::vector<Ref> versions(b_.size(), chunks_[b_.rank()]);
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

  // Once every rank has written its own chunk: everybody's.
  std::vector<Ref> AllGather() {
    if (b_.options().peers_mapped) return InPlace(chunks_);
    for (int distance = 1; distance < b_.size(); ++distance) {
      const Rank from = (b_.rank() + b_.size() - distance) % b_.size();
      b_.Send((b_.rank() + distance) % b_.size(), chunks_[b_.rank()]);
      b_.Recv(from, chunks_[from]);
    }
    return chunks_;
  }

 private:
  std::vector<Ref> InPlace(std::vector<Ref> refs) {
    b_.Signal();
    b_.WaitAll();
    for (Rank rank = 0; rank < b_.size(); ++rank) refs[rank] = refs[rank].At(rank);
    return refs;
  }

  PlanBuilder& b_;
  std::vector<Ref> chunks_;
};

void Build(const Strategy& strategy, PlanBuilder& b) {
  const CodecChoice codec = CodecOf(strategy);
  if (!Shrinks(b.spec(), b.size(), codec)) {
    SelectSchedule(b.spec(), b.size(), b.options())->schedule->build(b);
    return;
  }
  const Ref bucket = b.out();
  // Codecs work on f32: a bucket of a 16-bit type is widened on its way in and rounded once on its way out.
  const Ref wide = bucket.dtype == DType::kF32 ? bucket : b.Scratch(DType::kF32, bucket.count());
  auto chunk = [&b](const Ref& whole, int i) {
    const Range range = ChunkOf(whole.count(), b.size(), i);
    return whole.Elements(range.begin, range.count);
  };

  EncodedChunks gradients(b, codec);
  for (int i = 0; i < b.size(); ++i) {
    b.Copy(chunk(wide, i), chunk(bucket, i));
    b.Encode(gradients[i], chunk(wide, i), codec);
  }

  const Ref sum = chunk(wide, b.rank());
  const std::vector<Ref> versions = gradients.AllToAll();
  for (Rank rank = 0; rank < b.size(); ++rank) b.Decode(sum, versions[rank], codec, /*accumulate=*/rank > 0);
  if (strategy.flag("average")) b.Scale(sum, sum, b.size());

  EncodedChunks results(b, codec);
  b.Encode(results[b.rank()], sum, codec);
  const std::vector<Ref> everybodys = results.AllGather();
  for (int i = 0; i < b.size(); ++i) {
    b.Decode(chunk(wide, i), everybodys[i], codec);
    b.Copy(chunk(bucket, i), chunk(wide, i));
  }
  if (b.options().peers_mapped) {
    // Peers still read this rank's results: they must not change before everybody is done.
    b.Signal();
    b.WaitAll();
  }
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(bytegrad);
constinit const tutti::Algorithm tutti_algorithm_bytegrad = {
    .name = "bytegrad",
    .summary = "Average the gradients in 8 bits per element while backward runs",
    .cost = "2(n-1)/n · N/4 bytes",
    .exchanges = tutti::Exchanges::kGradients,
    .phase = tutti::Phase::kBackward,
    .options = tutti::kOptions,
    .codec = "uint8_block",
    .supports = tutti::Supports,
    .build = tutti::Build,
};
