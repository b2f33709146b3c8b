// The instructions that a rank takes for its wires to other nodes: for a call of Progress while nothing moves, which
// must not depend on the number of peers, and for a frame of a message, whose bytes are the kernel's to copy.
#include <sys/socket.h>

#include <deque>
#include <string>
#include <vector>

#include "tests/harness/count_instructions.h"
#include "tests/transports/wire_pair.h"

namespace tutti::ucx {
namespace {

constexpr int kCalls = 1024;
constexpr std::int64_t kFrame = 128 << 10;
constexpr std::int64_t kFrames = 16;
constexpr std::int64_t kBytes = kFrames * kFrame;

// A rank with wires to `peers` ranks, and these ranks.
struct Star {
  explicit Star(int peers) {
    std::vector<WireSockets> connections;
    for (Rank peer = 0; peer < peers; ++peer) {
      std::vector<UnsharedFd> mine, others;
      for (int i = 0; i < 2; ++i) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        mine.emplace_back(UniqueFd(ends[0]));
        others.emplace_back(UniqueFd(ends[1]));
      }
      connections.push_back({peer, std::move(mine)});
      leaves.emplace_back(peers, std::move(others), peers + 1);
    }
    EXPECT_TRUE(hub.Watch(std::move(connections), peers + 1).ok());
  }
  // Moves bytes until none can be moved.
  void MoveAll() {
    for (bool moved = true; moved;) {
      moved = hub.Progress(/*looks=*/true, nothing);
      hub.TakeEnded([](const WireEnd&) {});
      for (WiredRank& leaf : leaves) moved |= leaf.Move();
    }
  }

  NoShortReceiver nothing;
  Wires hub;
  std::deque<WiredRank> leaves;
};

void CountIdle(int peers) {
  Star star(peers);
  std::string in(1, '?');
  const auto progress = [&] {
    for (int i = 0; i < kCalls; ++i) star.hub.Progress(/*looks=*/false, star.nothing);
  };
  star.MoveAll();
  progress();
  CountInstructions(absl::StrCat("Progress without messages, ", peers, " peers"), kCalls, progress);
  star.hub.To(0)->Receive(0, in.data(), 1, 0);
  progress();
  CountInstructions(absl::StrCat("Progress with one receive under way, ", peers, " peers"), kCalls, progress);
}

// Messages from a leaf to the hub, whose receives are posted before (`early`: after) they come.
void CountFrames(absl::string_view name, bool early) {
  Star star(1);
  const std::string out(kBytes, 's');
  std::string in(kBytes, '?');
  const auto message = [&] {
    const std::uint32_t number = star.leaves[0].wire().Send(out.data(), kBytes, 0);
    if (early) star.MoveAll();
    star.hub.To(0)->Receive(number, in.data(), kBytes, 0);
    star.MoveAll();
  };
  for (int warm_up = 0; warm_up < 8; ++warm_up) message();
  CountInstructions(name, kFrames, message);
  EXPECT_TRUE(in == out);
}

void CountAll() {
  for (const int peers : {1, 64}) CountIdle(peers);
  CountFrames("frame whose receive is posted", /*early=*/false);
  CountFrames("frame whose receive is posted late", /*early=*/true);
}

}  // namespace
}  // namespace tutti::ucx

int main() { return tutti::CountOnAvx2(tutti::ucx::CountAll); }
