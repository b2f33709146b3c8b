// low_precision_decentralized: after its optimizer step a rank sends its two neighbours on a ring, in 8 bits per
// element, the change of its weights x. Every rank keeps three replicas, which are equal on all ranks at first: W of
// its own weights, L and R of the weights of the ranks before and after it. Q encodes and D decodes:
//
//   d = x + L/3 + R/3 - 5W/3;  send Q(d);  x = W = W + D(Q(d));  L += D(Q of the left);  R += D(Q of the right)
//
// so that W of a rank, R of the rank before it and L of the rank after it stay equal bit for bit, whatever Q loses.
// Weights are encoded, sent and decoded piece by piece, as a pipeline. x is final before any message arrives: the
// synchronizer then goes on to the next forward (docs/decisions/0013).
//
// After Bagua's LowPrecisionDecentralized (Tang et al., DCD-PSGD, https://arxiv.org/abs/1803.06443).
#include <vector>

#include "absl/status/status.h"
#include "algorithms/compression.h"
#include "tutti/algorithm.h"
#include "tutti/bucket_support.h"

namespace tutti {
namespace {

constexpr AlgorithmOption kOptions[] = {
    {"hierarchical", "true", "true | false", "average inside each node first; no effect on one node", CheckListed},
    {"communication_interval", "1", "1, 2, …", "steps from one exchange to the next", CheckPositive},
};

RoundOfStep RoundsOfSteps(const Strategy& strategy, int /*size*/) {
  const std::int64_t interval = strategy.integer("communication_interval");
  return [interval](std::int64_t step) { return step % interval == 0 ? 0 : kNoExchange; };
}

absl::Status Supports(const Strategy& /*strategy*/, const CollectiveSpec& bucket, int /*size*/,
                      const PlanOptions& /*plan*/) {
  return CheckEncodable("weights", bucket.dtype, " (use decentralized)");
}

Rank LeftOf(Rank rank, int size) { return (rank + size - 1) % size; }
Rank RightOf(Rank rank, int size) { return (rank + 1) % size; }

std::vector<double> Mixing(const Strategy& /*strategy*/, int /*round*/, Rank rank, int size) {
  if (size == 1) return {};
  std::vector<double> row(size, 0);
  for (const Rank part : {LeftOf(rank, size), rank, RightOf(rank, size)}) row[part] += 1.0 / 3;
  return row;
}

// The messages of a piece: this rank's own, and those of its two neighbours.
struct Messages {
  Ref own, left, right;
};

void Build(const Strategy& strategy, int /*round*/, PlanBuilder& b) {
  if (b.size() == 1) return;
  const CodecChoice codec = CodecOf(strategy);
  const std::int64_t count = b.in().count();
  const Rank left = LeftOf(b.rank(), b.size());
  const Rank right = RightOf(b.rank(), b.size());
  const Ref own_replica = b.Replica("own", b.rank(), DType::kF32, count);
  const Ref left_replica = b.Replica("left", left, DType::kF32, count);
  const Ref right_replica = b.Replica("right", right, DType::kF32, count);
  const bool widens = b.in().dtype != DType::kF32;
  const Ref wide = widens ? b.Scratch(DType::kF32, count) : b.in();
  if (widens) b.Copy(wide, b.in());
  if (count == 0) return;
  const Pieces pieces(b, codec, count);
  const auto part = [&](const Ref& whole, std::size_t i) {
    const Range range = pieces.Of(count, static_cast<std::int64_t>(i));
    return whole.Elements(range.begin, range.count);
  };
  std::vector<Messages> messages(static_cast<std::size_t>(pieces.count()));
  // One piece, the last and longest: it stays in the cache.
  const Ref difference = b.Scratch(DType::kF32, part(wide, messages.size() - 1).count());

  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Ref x = part(wide, i);
    const Ref d = difference.Elements(0, x.count());
    b.Combine(d, {x, part(left_replica, i), part(right_replica, i), part(own_replica, i)},
              {{1, 1}, {1, 3}, {1, 3}, {-5, 3}});
    Messages& m = messages[i];
    m.own = m.left = m.right = b.Message(d.count(), codec);
    b.Encode(m.own, d, codec);
    b.Decode(part(own_replica, i), m.own, codec, /*accumulate=*/true);
    b.Copy(part(b.out(), i), part(own_replica, i));
    if (b.options().all_mapped()) continue;
    b.Send(right, m.own);
    b.Recv(left, m.left = b.Scratch(DType::kU8, m.own.count()));
    m.right = m.left;
    if (left == right) continue;  // two ranks: one message serves both replicas
    b.Send(left, m.own);
    b.Recv(right, m.right = b.Scratch(DType::kU8, m.own.count()));
  }
  if (b.options().all_mapped()) {
    b.Signal();
    b.WaitFor({left, right});
    for (Messages& m : messages) {
      m.left = m.left.At(left);
      m.right = m.right.At(right);
    }
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    b.Decode(part(left_replica, i), messages[i].left, codec, /*accumulate=*/true);
    b.Decode(part(right_replica, i), messages[i].right, codec, /*accumulate=*/true);
  }
}

}  // namespace
}  // namespace tutti

TUTTI_ALGORITHM(low_precision_decentralized) = {
    .name = "low_precision_decentralized",
    .summary = "Tell two neighbours what changed in the weights, in 8 bits per element, after the optimizer step",
    .cost = "2 · N/4 bytes (N/4 with 2 ranks)",
    .exchanges = tutti::Exchanges::kWeightDifferences,
    .phase = tutti::Phase::kAfterStep,
    .options = tutti::kOptions,
    .codec = "uint8_block",
    .round_of = tutti::RoundsOfSteps,
    .supports = tutti::Supports,
    .mixing = tutti::Mixing,
    .build = tutti::Build,
};
