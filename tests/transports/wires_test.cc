// One rank with wires to many others.
#include "transports/ucx/wires.h"

#include <deque>

#include "tests/transports/wire_pair.h"

namespace tutti::ucx {
namespace {

constexpr int kPeers = 64;
constexpr Rank kMe = kPeers;
constexpr int kRanks = kPeers + 1;

// Rank kMe, and its peers, each with a wire to rank kMe.
struct Star {
  Star() {
    std::vector<WireSockets> connections;
    for (Rank peer = 0; peer < kPeers; ++peer) {
      std::vector<UnsharedFd> mine, others;
      for (int i = 0; i < 2; ++i) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        mine.emplace_back(UniqueFd(ends[0]));
        others.emplace_back(UniqueFd(ends[1]));
      }
      connections.push_back({peer, std::move(mine)});
      peers.emplace_back(kMe, std::move(others), kRanks);
    }
    EXPECT_TRUE(wires.Watch(std::move(connections), kRanks).ok());
  }
  // Moves bytes until none can be moved.
  void MoveAll() {
    for (bool moved = true; moved;) {
      moved = wires.Progress(/*looks=*/true, nothing);
      wires.TakeEnded([this](const WireEnd& end) { ended.push_back(end.operation); });
      for (WiredRank& peer : peers) moved |= peer.Move() || peer.HasBytesUnderWay();
    }
  }

  NoShortReceiver nothing;
  Wires wires;
  std::deque<WiredRank> peers;
  std::vector<std::uint32_t> ended;  // operations of rank kMe
};

TEST(Wires, TheWindowsOfAllPeersTogetherAreBounded) {
  EXPECT_EQ(Wire::WindowOf(1), Wire::kMaxWindow);
  EXPECT_EQ(Wire::WindowOf(9), Wire::kMaxWindow) << "few peers need not share";
  EXPECT_EQ(Wire::WindowOf(17), Wire::kMaxWindow / 2);
  for (int ranks = 2; ranks < 100'000; ranks = ranks * 3 / 2 + 1) {
    EXPECT_GT(Wire::WindowOf(ranks), 0);
    EXPECT_LE(2 * Wire::WindowOf(ranks) * (ranks - 1), Wire::kEarlyMemory) << ranks;
  }
}

TEST(Wires, ManyPeersSendAWindowEachAndTheRestOnceItIsReceived) {
  const std::int64_t window = Wire::WindowOf(kRanks);
  const std::int64_t bytes = window * 3 / 4;
  constexpr std::uint32_t kEach = 2;
  const std::string out = Payload(static_cast<std::size_t>(bytes), 1);
  Star star;
  for (WiredRank& peer : star.peers) {
    for (std::uint32_t i = 0; i < kEach; ++i) EXPECT_EQ(peer.wire().Send(out.data(), bytes, i), i);
  }
  star.MoveAll();
  for (const WiredRank& peer : star.peers) EXPECT_EQ(peer.sent, std::vector<std::uint32_t>{0});
  // The receives are posted in the other order, those of one message of all peers before those of the next.
  std::string in(out.size(), '?');
  for (std::uint32_t number = kEach; number-- > 0;) {
    for (Rank peer = kPeers; peer-- > 0;) {
      const auto operation = static_cast<std::uint32_t>(peer);
      std::fill(in.begin(), in.end(), '?');
      ASSERT_TRUE(star.wires.To(peer)->Receive(number, in.data(), bytes, operation));
      star.MoveAll();
      ASSERT_EQ(std::exchange(star.ended, {}), std::vector<std::uint32_t>{operation});
      ASSERT_TRUE(in == out);
    }
  }
  for (const WiredRank& peer : star.peers) EXPECT_EQ(peer.sent.size(), kEach);
}

TEST(Wires, AWireThatBreaksIsToldOfOnceAndTheOthersGoOn) {
  const std::string out = Payload(100, 1);
  std::string in(100, '?');
  Star star;
  star.peers[3].wire().Close();  // which closes the connection
  star.MoveAll();
  std::vector<Rank> broken;
  const auto note = [&](Rank peer, Wire& wire) {
    EXPECT_EQ(wire.broken(), "it closed its connection");
    broken.push_back(peer);
    wire.Close();
  };
  star.wires.TakeBroken(note);
  star.wires.TakeBroken(note);
  EXPECT_EQ(broken, std::vector<Rank>{3});
  star.wires.Close(3);
  EXPECT_EQ(star.wires.To(3), nullptr);
  star.peers[5].wire().Send(out.data(), 100, 0);
  ASSERT_TRUE(star.wires.To(5)->Receive(0, in.data(), 100, 7));
  star.MoveAll();
  EXPECT_EQ(star.ended, std::vector<std::uint32_t>{7});
  EXPECT_TRUE(in == out);
}

}  // namespace
}  // namespace tutti::ucx
