// Reduce-scatter, recursive halving (Thakur, Rabenseifner and Gropp 2005, §4.3): the first half of the all-reduce of
// Rabenseifner 2004.
//
// n ranks are folded to p participants, a power of two (fold.h), whose runs of ranks are in rank order. The input holds
// one chunk per rank. At distance d = p/2, p/4 … 1, participants v and v xor d hold partials of the same chunks: those
// of 2d participants. Each sends the chunks of the d participants that the other keeps, and adds to the chunks that it
// keeps what it receives. A participant ends with its own chunk, and the chunk of its extra, to which it sends it.
//
// A run of chunks that is longer than a segment travels in pieces of whole chunks, as in the all_reduce
// `halving_doubling`.
//
// Steps per rank: log2 p (and 2 more where n is not a power of two). Bytes sent: (n-1)·C, C being one rank's output
// (extras: n·C), twice as many for 16-bit sums, averages and products, since partials are fp32.
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tutti/schedule.h"
#include "tutti/schedules/chunks.h"
#include "tutti/schedules/fold.h"
#include "tutti/schedules/pairwise_exchange.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  if (b.size() == 1) return b.Copy(b.out(), b.in());
  const std::int64_t count = b.spec().count;
  if (count == 0) return;
  const Fold fold(b.size());
  if (fold.IsExtra(b.rank())) return HandToPartner(b);

  // Where a combination with `mine` goes: the input stays as it is.
  const auto place_for = [&](const Ref& mine) {
    return mine.space == Space::kScratch ? mine : b.Scratch(PartialType(b), mine.count());
  };
  Ref run = InputAsPartial(b);  // of the chunks that this rank still combines
  const std::optional<Rank> extra = fold.ExtraOf(b.rank());
  if (extra) {
    const Ref theirs = b.Scratch(PartialType(b), run.count());
    const Ref combined = place_for(run);
    b.Recv(*extra, theirs);
    b.Reduce(combined, {run, theirs}, PartialOp(b.spec()));
    run = combined;
  }

  const int participant = fold.Participant(b.rank());
  const int per_piece = ChunksPerPiece(b, run.Elements(0, count), fold.participants());
  const Ref result_of_extra = extra ? b.Scratch(b.out().dtype, count) : Ref{};
  int first = 0;  // the first participant whose chunks are left
  for (int distance = fold.participants() / 2; distance >= 1; distance /= 2) {
    const Rank peer = fold.RankOf(participant ^ distance);
    const bool lower = b.rank() < peer;
    const std::int64_t middle = (fold.RankOf(first + distance) - fold.RankOf(first)) * count;
    const Ref low = run.Elements(0, middle);
    const Ref high = run.Elements(middle, run.count() - middle);
    const Ref given = lower ? high : low;
    const Ref kept = lower ? low : high;
    if (!lower) first += distance;

    const bool last = distance == 1;
    const std::int64_t length = (last ? 1 : per_piece) * count;
    const Ref arriving = b.Scratch(PartialType(b), kept.count());
    const Ref combined = last ? Ref{} : place_for(kept);
    for (std::int64_t begin = 0; begin < given.count(); begin += length) b.Send(peer, SliceOf(given, begin, length));
    for (std::int64_t begin = 0; begin < kept.count(); begin += length) {
      const Ref mine = SliceOf(kept, begin, length);
      const Ref theirs = SliceOf(arriving, begin, length);
      const Ref result = !last ? SliceOf(combined, begin, length) : begin == 0 ? b.out() : result_of_extra;
      b.Recv(peer, theirs);
      b.Reduce(result, {lower ? mine : theirs, lower ? theirs : mine}, last ? b.spec().op : PartialOp(b.spec()));
    }
    run = combined;
  }
  if (extra) b.Send(*extra, result_of_extra);
}

// Long chunks go around a ring, which needs less scratch, and in which no message waits behind those of another rank.
absl::Status Competes(const CollectiveSpec& spec, int /*size*/, const PlanOptions& /*options*/) {
  return OfShortBlocks(spec, 32 << 10);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(reduce_scatter, halving) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "halving",
    .summary = "recursive halving: to ranks at ever shorter distances, half of the chunks that are left",
    .cost = "⌊log2 n⌋ steps (+2 unless n is a power of two), (n-1)·C bytes (C: one rank's output; extras: n·C)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::Competes,
};
