// A program that sends and receives for ever does not need more and more memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <vector>

#include "tests/comm/point_to_point.h"

namespace tutti {
namespace {

using PointToPointMemorySlow = PointToPoint;

// The memory of this process that is resident, in bytes.
std::int64_t Resident() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  file >> total >> resident;
  return resident * getpagesize();
}

// 100,000 messages of many tags, half of them received from any source, half long enough to be seen if they were kept.
TEST_P(PointToPointMemorySlow, StaysTheSameOver100000Messages) {
  constexpr int kMessages = 50'000;  // messages of each rank
  constexpr std::int64_t kBytes = 2'000;
  RunWorld(2, options(), [&](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    std::vector<std::uint8_t> out(kBytes), in(kBytes);
    const auto exchange = [&](int from, int to) {
      for (int i = from; i < to; ++i) {
        const CallOptions options = {.tag = 7919 * i % (kMaxTag + 1)};
        const std::int64_t bytes = i % 2 == 0 ? kBytes : 1;
        Work recv = comm.Recv(in.data(), bytes, DType::kU8, i % 4 < 2 ? peer : kAnySource, options);
        Work send = comm.Send(out.data(), bytes, DType::kU8, peer, options);
        ASSERT_EQ(recv.Wait(), absl::OkStatus());
        ASSERT_EQ(send.Wait(), absl::OkStatus());
      }
    };
    exchange(0, kMessages / 5);
    const std::int64_t before = Resident();
    const Counters counted = comm.counters();
    exchange(kMessages / 5, kMessages);
    EXPECT_LT(Resident() - before, std::int64_t{8} << 20);
    EXPECT_EQ(comm.counters().calls - counted.calls, 2 * (kMessages - kMessages / 5));
    EXPECT_EQ(comm.counters().staged_bytes, counted.staged_bytes);
  });
}

INSTANTIATE_TEST_SUITE_P(, PointToPointMemorySlow, ::testing::ValuesIn(WorldKinds()), NameOfWorldKind);

}  // namespace
}  // namespace tutti
