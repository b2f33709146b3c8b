// The memory that a wire holds for what comes before its receive is posted: this test asks the allocator.
#include <malloc.h>

#include "tests/transports/wire_pair.h"

namespace tutti::ucx {
namespace {

std::int64_t BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

// A short message that nobody receives must not keep the memory of a long one before it.
TEST(WireAllocations, ShortMessagesKeepNoMemoryOfLongOnes) {
  constexpr std::int64_t kShort = 64 << 10;
  constexpr std::int64_t kLong = 6 << 20;
  constexpr std::uint32_t kRounds = 30;
  const std::string out = Payload(kLong, 1);
  std::string in(kLong, '?');
  WirePair ranks(/*connections=*/1);
  std::vector<std::uint32_t> kept;
  const std::int64_t before = BytesInUse();
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t number = ranks.a.wire().Send(out.data(), kLong, 0);
    ranks.MoveAll();
    ASSERT_TRUE(ranks.b.wire().Receive(number, in.data(), kLong, 0));
    kept.push_back(ranks.a.wire().Send(out.data(), kShort, 0));
    ranks.MoveAll();
    ASSERT_LE(BytesInUse() - before, 2 * Wire::kMaxWindow + (1 << 20)) << "after " << round << " rounds";
  }
  for (const std::uint32_t number : kept) ASSERT_TRUE(ranks.b.wire().Receive(number, in.data(), kShort, 0));
  ranks.MoveUntil([&] { return ranks.b.received.size() == 2 * kRounds; });
}

}  // namespace
}  // namespace tutti::ucx
