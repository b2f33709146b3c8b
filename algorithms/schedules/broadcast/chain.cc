// Broadcast, chain: the root sends the buffer to the next rank, which passes each piece on as soon as it has come
// (pipelining; van de Geijn 1994, "On global combine operations", and the "chain" of most MPI libraries).
//
// Steps: n-1 on the longest path between n ranks. Bytes sent: S, the whole buffer, by every rank but the last, the
// minimum for messages. The chain serves large buffers: with k pieces it takes (k+n-2)/k of the time that S bytes take.
#include "tutti/schedule.h"
#include "tutti/schedules/chain_pieces.h"
#include "tutti/schedules/ring_steps.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const int n = b.size();
  const int v = OnRing(b.rank() - b.spec().root, n);  // the distance from the root
  const Ref source = v == 0 ? b.in() : b.out();
  const std::int64_t piece = ChainPiece(b, b.spec().dtype);
  for (std::int64_t begin = 0; begin < b.spec().count && n > 1; begin += piece) {
    const Ref part = source.Elements(begin, std::min(piece, b.spec().count - begin));
    if (v > 0) b.Recv(PreviousOnRing(b), part);
    if (v < n - 1) b.Send(NextOnRing(b), part);
  }
  if (v == 0) b.Copy(b.out(), b.in());
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(broadcast, chain) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "chain",
    .summary = "piece by piece from each rank to the next",
    .cost = "n-1 steps, S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::ChainCompetes,
};
