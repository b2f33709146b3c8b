// Scatter, eager: the root copies the blocks of the other ranks to scratch, signals and goes on, without waiting for
// them; every other rank waits for the root and copies its block.
//
// Steps of the root, with n ranks: n+1; of every other rank 2. Bytes copied by the root: (n-1)·C, C being one block,
// and read from the root: C by every other rank.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  const Rank root = b.spec().root;
  if (count == 0) return;
  const Ref blocks = b.Scratch(b.spec().dtype, b.size() > 1 ? (b.size() - 1) * count : 0);
  const auto place_of = [&](Rank rank) { return blocks.Elements((rank - (rank > root ? 1 : 0)) * count, count); };
  if (b.rank() != root) {
    b.Wait(root);
    b.Copy(b.out(), place_of(b.rank()).At(root));
    return;
  }
  for (Rank rank = 0; rank < b.size(); ++rank) {
    if (rank != root) b.Copy(place_of(rank), b.in().Elements(rank * count, count));
  }
  if (b.size() > 1) b.Signal();
  b.Copy(b.out(), b.in().Elements(root * count, count));
}

absl::Status SupportsEager(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  return SupportsBlocksInScratch(spec, size - 1, kLaneBytes, options);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(scatter, eager) = {
    .collective = tutti::Collective::kScatter,
    .name = "eager",
    .summary = "the root copies the other blocks to mapped scratch and goes on; every other rank reads its own",
    .cost = "1 signal, of the root, C bytes (C: one block)",
    .supports = tutti::schedules::SupportsEager,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
