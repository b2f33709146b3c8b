// The beginning that the schedules of all_to_all_v over mapped memory share.
#ifndef TUTTI_ALGORITHMS_SCHEDULES_ALL_TO_ALL_V_SHORT_BLOCKS_H_
#define TUTTI_ALGORITHMS_SCHEDULES_ALL_TO_ALL_V_SHORT_BLOCKS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tutti/plan_builder.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {

// Which blocks are short: those of up to kShortBytes, which are copied to a slot in scratch, where peers may read
// them until the next run. The two ranks of a block, which both know its length, agree on whether the block is short.
class ShortBlocks {
 public:
  explicit ShortBlocks(PlanBuilder& b)
      : longest_(LongestOf(b)), slot_(b.Scratch(b.spec().dtype, longest_ * b.size())) {}

  bool Has(const Ref& block) const { return block.count() <= longest_; }

  // Every rank copies its short blocks to its slot, all ranks meet, and every rank reads what is for it. `leaving` and
  // `arriving` are the blocks of input and output, by rank; this rank's own is left out.
  void Exchange(PlanBuilder& b, const std::vector<Ref>& leaving, const std::vector<Ref>& arriving) const {
    const auto for_each_peer = [&](const std::vector<Ref>& blocks, auto&& act) {
      for (int i = 1; i < b.size(); ++i) {
        const Rank peer = (b.rank() + i) % b.size();
        const Ref& block = blocks[static_cast<std::size_t>(peer)];
        if (Has(block)) act(peer, block);
      }
    };
    for_each_peer(leaving, [&](Rank peer, const Ref& block) { b.Copy(PlaceFor(peer, block), block); });
    MeetAll(b);
    for_each_peer(arriving, [&](Rank peer, const Ref& block) { b.Copy(block, PlaceFor(b.rank(), block).At(peer)); });
  }

 private:
  // Longer blocks take less time where they lie (docs/decisions/0026).
  static constexpr std::int64_t kShortBytes = 256;
  // The slot fits into the memory of the call's lane, so that a call with short blocks only needs no other scratch.
  static constexpr std::int64_t kSlotBytes = 32 << 10;

  static std::int64_t LongestOf(const PlanBuilder& b) {
    return std::min(kShortBytes, kSlotBytes / b.size() / 64 * 64) / SizeOf(b.spec().dtype);
  }

  Ref PlaceFor(Rank to, const Ref& block) const { return slot_.Elements(to * longest_, block.count()); }

  const std::int64_t longest_;  // elements of the longest block
  const Ref slot_;              // a place for each rank, for `longest_` elements
};

}  // namespace tutti::schedules

#endif  // TUTTI_ALGORITHMS_SCHEDULES_ALL_TO_ALL_V_SHORT_BLOCKS_H_
