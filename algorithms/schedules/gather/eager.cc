// Gather, eager: every rank but the root copies its block to scratch, signals and goes on, without waiting for the
// root; the root waits for all others and copies their blocks.
//
// Steps of the root, with n ranks: 2n-1; of every other rank 2. Bytes copied by every rank but the root: C, one block,
// and read by the root: (n-1)·C.
#include "tutti/schedule.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const std::int64_t count = b.spec().count;
  if (count == 0) return;
  const Ref block = b.Scratch(b.spec().dtype, b.size() > 1 ? count : 0);
  if (b.rank() != b.spec().root) {
    b.Copy(block, b.in());
    b.Signal();
    return;
  }
  b.Copy(b.out().Elements(b.rank() * count, count), b.in());
  for (int i = 1; i < b.size(); ++i) b.Wait((b.rank() + i) % b.size());
  for (int i = 1; i < b.size(); ++i) {
    const Rank peer = (b.rank() + i) % b.size();
    b.Copy(b.out().Elements(peer * count, count), block.At(peer));
  }
}

// The largest block, in bytes, for which this schedule is used. With longer blocks the copies of the root, which waits
// for all ranks and copies one block after the other, cost more than other schedules lose by making all ranks meet
// (docs/decisions/0027-eager-schedules.md).
constexpr std::int64_t kMaxBlockBytes = 16 << 10;

absl::Status SupportsEager(const CollectiveSpec& spec, int /*size*/, const PlanOptions& options) {
  return SupportsBlocksInScratch(spec, 1, kMaxBlockBytes, options);
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(gather, eager) = {
    .collective = tutti::Collective::kGather,
    .name = "eager",
    .summary = "every rank copies its block to mapped scratch and goes on; the root reads all",
    .cost = "1 signal of every rank but the root, (n-1)·C bytes (C: one block)",
    .supports = tutti::schedules::SupportsEager,
    .build = tutti::schedules::Build,
    .touches_only_scratch_of_peers = true,
};
