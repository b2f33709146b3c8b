// The number of bytes of which the kernel tells a rank that waits for a payload (SO_RCVLOWAT).
#include "tests/transports/sockets_at.h"
#include "tests/transports/wire_pair.h"
#include "transports/ucx/wire.h"

namespace tutti::ucx {
namespace {

constexpr std::size_t kFrame = 40'000;  // less than fills a socket, of which a rank is told, too
constexpr std::size_t kHeader = sizeof(FrameHeader);

// A rank that receives a message of one frame, whose sender is the test.
class Receiver {
 public:
  Receiver() : Receiver(Join(), Join()) {}

  // Writes the next bytes of the frame, and waits until the rank's kernel has them.
  void Write(std::size_t bytes) {
    ASSERT_EQ(send(raw_.get(), frame_.data() + written_, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
    written_ += bytes;
    AwaitDelivery(raw_.get());
  }
  void Close() { raw_ = UnsharedFd(); }
  // Whether the rank is told of something in the next milliseconds.
  bool IsTold(int ms = 20) {
    pollfd fd = {rank_.wires.fd(), POLLIN, 0};
    return poll(&fd, 1, ms) > 0;
  }
  bool IsToldSoon() { return IsTold(60'000); }
  void MoveAll() {
    while (rank_.Move()) {
    }
  }
  WiredRank& rank() { return rank_; }
  bool HasMessage() const { return in_ == out_; }

 private:
  using Connection = std::array<UnsharedFd, 2>;

  Receiver(Connection ends, Connection short_ends)
      : raw_(std::move(ends[0])),
        short_raw_(std::move(short_ends[0])),
        rank_(1, Sockets(std::move(short_ends[1]), std::move(ends[1]))) {
    const FrameHeader header = {.bytes = kFrame, .length = kFrame};
    const FrameHeader next = {.number = 1, .bytes = 1, .length = 1};
    frame_ = std::string(reinterpret_cast<const char*>(&header), kHeader) + out_ +
             std::string(reinterpret_cast<const char*>(&next), kHeader) + "x";
    EXPECT_TRUE(rank_.wire().Receive(0, in_.data(), kFrame, 7));
    MoveAll();
    EXPECT_FALSE(IsTold(0));
  }
  static std::vector<UnsharedFd> Sockets(UnsharedFd first, UnsharedFd second) {
    std::vector<UnsharedFd> sockets;
    sockets.push_back(std::move(first));
    sockets.push_back(std::move(second));
    return sockets;
  }

  std::string out_ = Payload(kFrame, 1);
  std::string in_ = std::string(kFrame, '?');
  std::string frame_;
  std::size_t written_ = 0;
  UnsharedFd raw_, short_raw_;
  WiredRank rank_;
};

TEST(WireLowWater, ARankIsToldWhenAllHasComeThatIsLeftOfAFrame) {
  Receiver receiver;
  receiver.Write(kHeader + 1000);
  EXPECT_TRUE(receiver.IsToldSoon());
  receiver.MoveAll();
  receiver.Write(10'000);
  EXPECT_FALSE(receiver.IsTold());
  receiver.Write(kFrame - 11'000 - 1);
  EXPECT_FALSE(receiver.IsTold());
  receiver.Write(1);
  EXPECT_TRUE(receiver.IsToldSoon());
  receiver.MoveAll();
  EXPECT_EQ(receiver.rank().received, std::vector<std::uint32_t>{7});
  EXPECT_TRUE(receiver.HasMessage());
}

TEST(WireLowWater, ARankIsToldOfEachByteBetweenTwoMessages) {
  Receiver receiver;
  receiver.Write(kHeader + kFrame);
  receiver.MoveAll();
  receiver.Write(1);
  EXPECT_TRUE(receiver.IsToldSoon());
  receiver.MoveAll();
  receiver.Write(kHeader);
  EXPECT_TRUE(receiver.IsToldSoon());
  receiver.MoveAll();
  EXPECT_EQ(receiver.rank().wire().messages_received(), 2u);
}

TEST(WireLowWater, BytesThatAreNotReadYetHaveCome) {
  Receiver receiver;
  receiver.Write(kHeader + 1000);
  receiver.MoveAll();
  receiver.Write(10'000);
  receiver.MoveAll();
  EXPECT_EQ(receiver.rank().wire().bytes_moved(), static_cast<std::int64_t>(kHeader) + 11'000);
}

TEST(WireLowWater, ThePeersEndIsToldThoughFewBytesHaveCome) {
  Receiver receiver;
  receiver.Write(kHeader + 1000);
  receiver.MoveAll();
  receiver.Write(10);
  receiver.Close();
  EXPECT_TRUE(receiver.IsToldSoon());
  receiver.MoveAll();
  EXPECT_TRUE(receiver.rank().wire().broken());
  EXPECT_TRUE(receiver.rank().received.empty());
}

}  // namespace
}  // namespace tutti::ucx
