// All-to-all, Bruck (Bruck, Ho, Kipnis, Upfal and Weathersby 1997, "Efficient algorithms for all-to-all
// communications").
//
// Rank r has a block for the rank at each distance i = 0 … n-1 ahead (doubling_steps.h). At step d = 1, 2, 4 … the
// blocks whose distance has the bit d move on by d, together in one message: each block goes by way of other ranks, in
// as many messages as its distance has bits. The original paper rotates the blocks before the first step and after the
// last one; here every block comes from its place in the input, and goes to its place in the output.
//
// Steps per rank: ⌈log2 n⌉, of up to n/2 blocks of C bytes. Bytes sent: about n/2·log2 n·C, in place of the (n-1)·C of
// schedules that send n-1 messages. The schedule serves blocks that take less time than a message.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tutti/schedule.h"
#include "tutti/schedules/doubling_steps.h"
#include "tutti/schedules/pairwise_exchange.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) {
  const int n = b.size();
  const std::int64_t count = b.spec().count;
  const auto block_of = [&](const Ref& buffer, Rank rank) { return buffer.Elements(rank * count, count); };
  // By distance: the place of the block that this rank holds, and that has so far to go or has come so far.
  std::vector<Ref> blocks;
  blocks.reserve(static_cast<std::size_t>(n));
  for (int distance = 0; distance < n; ++distance) {
    blocks.push_back(block_of(b.in(), Ahead(b.rank(), distance, n)));
  }
  b.Copy(block_of(b.out(), b.rank()), blocks[0]);
  for (int step = 1; step < n; step *= 2) {
    std::vector<int> moving;
    for (int distance = step; distance < n; ++distance) {
      if ((distance & step) != 0) moving.push_back(distance);
    }
    const auto length = static_cast<std::int64_t>(moving.size()) * count;
    const Ref leaving = b.Scratch(b.in().dtype, length);
    const Ref arriving = b.Scratch(b.in().dtype, length);
    for (std::size_t i = 0; i < moving.size(); ++i) {
      b.Copy(block_of(leaving, static_cast<Rank>(i)), blocks[static_cast<std::size_t>(moving[i])]);
    }
    b.Send(Ahead(b.rank(), step, n), leaving);
    b.Recv(Behind(b.rank(), step, n), arriving);
    for (std::size_t i = 0; i < moving.size(); ++i) {
      Ref& block = blocks[static_cast<std::size_t>(moving[i])];
      block = block_of(arriving, static_cast<Rank>(i));
      const bool has_arrived = moving[i] < 2 * step;
      if (has_arrived) b.Copy(block_of(b.out(), Behind(b.rank(), moving[i], n)), block);
    }
  }
}

absl::Status Competes(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  absl::Status few = FewRanksBetweenNodes(size, options);
  return few.ok() ? OfShortBlocks(spec, 4 << 10) : few;
}

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(all_to_all, bruck) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "bruck",
    .summary = "blocks go by way of other ranks, many in one message",
    .cost = "⌈log2 n⌉ steps, n/2·log2 n·C bytes (C: one block)",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
    .competes = tutti::schedules::Competes,
};
