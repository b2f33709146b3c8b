// Wires whose peer breaks the rules, or closes connections.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "tests/transports/wire_pair.h"
#include "transports/ucx/wire.h"

namespace tutti::ucx {
namespace {

using testing::HasSubstr;
using Kind = FrameHeader::Kind;

constexpr std::int64_t kWindow = Wire::kMaxWindow;

bool IsDelivered(const UnsharedFd& socket) {
  int unacknowledged = 0;
  return ioctl(socket.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
}

// A time far later than anything may come that a test waits for.
std::int64_t Soon() { return NanosIn(absl::Seconds(30)); }

// A rank whose peer is the test, which writes bytes of its own to the connections of the wire.
class Attacked {
 public:
  explicit Attacked(int connections = 1, int ranks = 2) : Attacked(Connections(connections), ranks) {}

  WiredRank& rank() { return rank_; }
  Wire& wire() { return rank_.wire(); }

  // Writes `bytes` to a connection, as many as the kernel takes, while the rank reads; false when the wire is broken.
  bool Write(const std::string& bytes, std::size_t connection = 0) {
    for (std::size_t written = 0; written < bytes.size();) {
      const ssize_t count =
          send(raw_[connection].get(), bytes.data() + written, bytes.size() - written, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) written += static_cast<std::size_t>(count);
      Settle();
      if (wire().broken()) return false;
    }
    return true;
  }
  void Frame(const FrameHeader& header, const std::string& payload = "", std::size_t connection = 0) {
    Write(std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload, connection);
  }
  void Close(std::size_t connection) {
    raw_[connection] = UnsharedFd();
    Settle();
  }
  // Lets the rank read all that was written; what it writes itself is thrown away.
  void Settle() {
    for (bool moved = true; moved && !wire().broken();) {
      moved = rank_.Move() || rank_.HasBytesUnderWay();
      for (const UnsharedFd& fd : raw_) {
        std::array<char, 4096> answer;
        while (fd.valid() && recv(fd.get(), answer.data(), answer.size(), MSG_DONTWAIT) > 0) {
        }
        moved |= fd.valid() && !IsDelivered(fd);
      }
    }
  }
  void ExpectBroken(const std::string& why) {
    ASSERT_TRUE(wire().broken().has_value()) << "not broken: " << why;
    EXPECT_THAT(*wire().broken(), HasSubstr(why));
    EXPECT_FALSE(wire().is_ready() || rank_.Move());
  }

 private:
  using Sockets = std::pair<std::vector<UnsharedFd>, std::vector<UnsharedFd>>;

  Attacked(Sockets sockets, int ranks)
      : short_(std::move(sockets.first.front())), rank_(1, std::move(sockets.second), ranks) {
    for (std::size_t i = 1; i < sockets.first.size(); ++i) raw_.push_back(std::move(sockets.first[i]));
  }
  static Sockets Connections(int count) {
    Sockets sockets;
    for (int i = 0; i < count + 1; ++i) {
      int ends[2];  // not TCP, whose acknowledgements come late, so that IsDelivered would last
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      sockets.first.emplace_back(UniqueFd(ends[0]));
      sockets.second.emplace_back(UniqueFd(ends[1]));
    }
    return sockets;
  }

  UnsharedFd short_;  // of the short wire, over which nothing comes
  std::vector<UnsharedFd> raw_;
  WiredRank rank_;
};

// Memory of a receive, between bytes that nobody may write to.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes) : memory_(2 * kGuard + bytes, 'g') {}

  char* data() { return memory_.data() + kGuard; }
  bool intact() const {
    const auto is_guard = [](char c) { return c == 'g'; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, is_guard) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), is_guard);
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 256;
  std::vector<char> memory_;
};

TEST(WireBroken, WhatIsNoFrameBreaksTheWire) {
  const std::vector<FrameHeader> headers = {
      {.kind = static_cast<Kind>(0x12345678), .bytes = 10, .length = 10},
      {.kind = static_cast<Kind>(0), .bytes = 10, .length = 10},
      {.bytes = 0, .length = 0},
      {.bytes = 10, .length = 0},
      {.bytes = 10, .length = -1},
      {.bytes = -10, .length = 10},
      {.bytes = 10, .length = 11},
      {.bytes = 10, .offset = 5, .length = 6},
      {.bytes = 10, .offset = -1, .length = 5},
      {.bytes = 10, .offset = INT64_MAX, .length = 5},
      {.bytes = INT64_MAX, .offset = INT64_MAX, .length = INT64_MAX},
      {.bytes = INT64_MIN, .offset = INT64_MIN, .length = INT64_MIN},
      {.bytes = INT64_MAX, .offset = INT64_MIN, .length = 1},
  };
  for (const FrameHeader& header : headers) {
    Attacked attacked;
    attacked.Frame(header);
    attacked.ExpectBroken("it sent what is no frame");
  }
}

TEST(WireBroken, MoreThanTheMessageHasBreaksTheWire) {
  {
    Attacked attacked;  // a second frame that tells of another length
    attacked.Frame({.bytes = 100, .length = 10}, Payload(10, 1));
    attacked.Frame({.bytes = 99, .offset = 10, .length = 10});
    attacked.ExpectBroken("it sent more than it may");
  }
  {
    Attacked attacked;  // frames that have more bytes together
    attacked.Frame({.bytes = 100, .length = 60}, Payload(60, 1));
    attacked.Frame({.bytes = 100, .offset = 0, .length = 60});
    attacked.ExpectBroken("it sent more than it may");
  }
  {
    Attacked attacked;  // another length than that of the receive
    Guarded in(50);
    attacked.wire().Receive(0, in.data(), 50, 7);
    attacked.Frame({.bytes = 51, .length = 51});
    attacked.ExpectBroken("it sent more than it may");
    EXPECT_TRUE(in.intact());
  }
}

TEST(WireBroken, MoreThanTheWindowBeforeAReceiveBreaksTheWire) {
  {
    Attacked attacked;
    attacked.Frame({.bytes = 2 * kWindow, .length = kWindow + 1});
    attacked.ExpectBroken("it sent more than it may");
  }
  {
    Attacked attacked;
    attacked.Frame({.bytes = 2 * kWindow, .offset = kWindow, .length = 1});
    attacked.ExpectBroken("it sent more than it may");
  }
  {
    Attacked attacked;  // by several messages
    for (std::uint32_t number = 0; number < 8; ++number) {
      attacked.Frame({.number = number, .bytes = 1 << 20, .length = 1 << 20}, Payload(1 << 20, number));
    }
    EXPECT_FALSE(attacked.wire().broken());
    attacked.Frame({.number = 8, .bytes = 1, .length = 1});
    attacked.ExpectBroken("it sent more than it may");
  }
}

// Every rank of a large world may send less before a receive, so that all peers together send no more than a few could.
TEST(WireBroken, TheWindowIsThatOfTheWorld) {
  constexpr int kRanks = 1001;
  const std::int64_t window = Wire::WindowOf(kRanks);
  ASSERT_LT(window, kWindow / 100);
  const std::string payload = Payload(static_cast<std::size_t>(window), 1);
  Attacked attacked(1, kRanks);
  attacked.Frame({.bytes = kWindow, .length = window}, payload);
  EXPECT_FALSE(attacked.wire().broken());
  attacked.Frame({.bytes = kWindow, .offset = window, .length = 1});
  attacked.ExpectBroken("it sent more than it may");
}

TEST(WireBroken, PartsThatOverlapBreakTheWire) {
  // What the frames of a message of 100 bytes cover; as many bytes as the message has, but not each of them once.
  const std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> covers = {
      {{0, 60}, {20, 60}},
      {{0, 50}, {0, 50}},
      {{50, 100}, {50, 100}},
      {{0, 40}, {60, 100}, {30, 50}},
      {{99, 100}, {0, 98}, {97, 98}},
  };
  for (const auto& cover : covers) {
    for (const bool received : {true, false}) {
      Attacked attacked(/*connections=*/2);
      Guarded in(100);
      if (received) attacked.wire().Receive(0, in.data(), 100, 5);
      for (std::size_t i = 0; i < cover.size() && !attacked.wire().broken(); ++i) {
        const auto [begin, end] = cover[i];
        attacked.Frame({.bytes = 100, .offset = begin, .length = end - begin},
                       Payload(static_cast<std::size_t>(end - begin), i), i % 2);
      }
      attacked.ExpectBroken("it sent parts of message 0 that overlap");
      EXPECT_TRUE(attacked.rank().received.empty());
      EXPECT_TRUE(in.intact());
      EXPECT_TRUE(received || !attacked.wire().Receive(0, in.data(), 100, 5));
    }
  }
}

// Each of these messages is within the window, but their memory, all together, is not.
TEST(WireBroken, BeginningsOfManyLongMessagesBreakTheWire) {
  Attacked attacked;
  for (std::uint32_t number = 0; number < 1000 && !attacked.wire().broken(); ++number) {
    attacked.Frame({.number = number, .bytes = kWindow, .length = 1}, "x");
  }
  attacked.ExpectBroken("it sent more than it may");
}

TEST(WireBroken, AMessageThatIsAnnouncedTwiceBreaksTheWire) {
  Guarded in(100);
  {
    Attacked attacked;
    EXPECT_TRUE(attacked.wire().Receive(3, in.data(), 100, 1));
    EXPECT_FALSE(attacked.wire().Receive(3, in.data(), 100, 2));
    attacked.ExpectBroken("message 3 twice");
  }
  {
    Attacked attacked;
    attacked.wire().Discard(3, 100);
    attacked.wire().Discard(3, 100);
    attacked.ExpectBroken("message 3 twice");
  }
}

TEST(WireBroken, AnnouncementsOfAnotherLengthThanThatOfTheFramesBreakTheWire) {
  Guarded in(50);
  for (const std::int64_t announced : {1, 50, 101}) {
    const FrameHeader header = {.number = 3, .bytes = 100, .length = 90};
    {
      Attacked attacked;
      attacked.Frame(header, Payload(60, 1));  // the frame goes on when the message is announced
      EXPECT_FALSE(attacked.wire().Receive(3, in.data(), announced, 1));
      attacked.ExpectBroken("message 3");
    }
    {
      Attacked attacked;
      attacked.Frame(header, Payload(60, 1));
      attacked.wire().Discard(3, announced);
      attacked.Write(Payload(30, 1));
      attacked.ExpectBroken("message 3");
    }
  }
  EXPECT_TRUE(in.intact());
}

std::string Numbers(const std::vector<std::uint32_t>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(numbers[0])};
}

TEST(WireBroken, MatchesOfNoMessageBreakTheWire) {
  const std::string out = Payload(100, 1);
  for (const std::vector<std::uint32_t>& numbers : {std::vector<std::uint32_t>{0, 0}, {1}, {0, 0xFFFFFFFF}}) {
    Attacked attacked;
    attacked.wire().Send(out.data(), 100, 1);
    attacked.Settle();
    attacked.Frame({.kind = Kind::kMatched, .length = static_cast<std::int64_t>(4 * numbers.size())}, Numbers(numbers));
    attacked.ExpectBroken(" twice");
  }
  for (const std::int64_t length : {-4, 0, 1, 5, 1028, 1 << 30}) {
    Attacked attacked;
    attacked.wire().Send(out.data(), 100, 1);
    attacked.Frame({.kind = Kind::kMatched, .length = length});
    attacked.ExpectBroken("no frame");
  }
}

TEST(WireBroken, AConnectionThatClosesInTheMiddleBreaksTheWire) {
  for (const std::size_t bytes : {1u, 31u, 32u, 33u, 5000u}) {
    for (const int connections : {1, 3}) {
      Attacked attacked(connections);
      const FrameHeader header = {.bytes = 10'000, .length = 10'000};
      const std::string frame =
          std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + Payload(10'000, 1);
      attacked.Write(frame.substr(0, bytes));
      attacked.Close(0);
      attacked.ExpectBroken("closed its connection");
    }
  }
}

TEST(WireBroken, OfSeveralConnectionsTheLastThatClosesBreaksTheWire) {
  Attacked attacked(3);
  Guarded in(300);
  attacked.wire().Receive(0, in.data(), 300, 5);
  for (const std::size_t i : {0u, 1u, 2u}) {
    attacked.Frame({.bytes = 300, .offset = static_cast<std::int64_t>(100 * i), .length = 100}, Payload(100, i), i);
    EXPECT_FALSE(attacked.wire().broken());
    if (i < 2) attacked.Close(i);
  }
  EXPECT_EQ(attacked.rank().received, std::vector<std::uint32_t>{5});
  EXPECT_EQ(std::string(in.data(), 300), Payload(100, 0) + Payload(100, 1) + Payload(100, 2));
  attacked.Close(2);
  attacked.ExpectBroken("closed its connection");
}

// Frames are lost that are written to a connection whose other end is closed: the open connections take all of them.
TEST(WireBroken, AConnectionThatThePeerHasClosedCarriesNoFrames) {
  constexpr std::size_t kBytes = 300'000;
  auto [closed, socket_a] = Join();
  auto [open, socket_b] = Join();
  std::vector<UnsharedFd> sockets;
  sockets.push_back(std::move(socket_a));
  sockets.push_back(std::move(socket_b));
  WiredRank rank(1, std::move(sockets));
  closed = UnsharedFd();
  while (rank.Move()) {
  }
  const std::string out = Payload(kBytes, 1);
  rank.wire().Send(out.data(), static_cast<std::int64_t>(kBytes), 7);
  std::string read;
  const std::int64_t end_ns = Soon();
  for (std::array<char, 65536> part; rank.sent.empty() || read.size() < kBytes;) {
    ASSERT_TRUE(!rank.wire().broken() && MonotonicNanos() < end_ns) << read.size() << " bytes have come";
    rank.Move();
    const ssize_t got = recv(open.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got > 0) read.append(part.data(), static_cast<std::size_t>(got));
  }
  EXPECT_EQ(rank.sent, std::vector<std::uint32_t>{7});
}

// A peer that has said goodbye may have closed its end, and would lose what is still on its way from there.
TEST(WireBroken, APeerThatHasSaidGoodbyeIsToldNothing) {
  constexpr std::int64_t kBytes = 3 * kWindow / 4;
  for (const bool said : {false, true}) {
    auto [peer, socket] = Join();
    auto [peer_short, short_socket] = Join();
    std::vector<UnsharedFd> sockets;
    sockets.push_back(std::move(short_socket));
    sockets.push_back(std::move(socket));
    WiredRank rank(1, std::move(sockets));
    std::string in(kBytes, '?');
    rank.wire().Receive(0, in.data(), kBytes, 5);
    if (said) rank.wire().HearGoodbye();
    const FrameHeader header = {.bytes = kBytes, .length = kBytes};
    std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
    frame += Payload(kBytes, 1);
    const std::int64_t end_ns = Soon();
    for (std::size_t written = 0; rank.received.empty();) {
      ASSERT_TRUE(!rank.wire().broken() && MonotonicNanos() < end_ns) << written << " bytes are on their way";
      const ssize_t count = send(peer.get(), frame.data() + written, frame.size() - written, MSG_DONTWAIT);
      if (count > 0) written += static_cast<std::size_t>(count);
      rank.Move();
    }
    while (rank.Move()) {
    }
    bool is_told = false;
    char part = 0;
    do {
      is_told = recv(peer.get(), &part, 1, MSG_DONTWAIT) > 0;
    } while (!said && !is_told && MonotonicNanos() < end_ns);
    EXPECT_EQ(is_told, !said);
  }
}

// A peer that has left, and takes nothing any more, may have sent bytes that are still to be read.
TEST(WireBroken, WhatAPeerSentThatHasLeftIsReceived) {
  constexpr std::size_t kBytes = 30'000;
  auto [raw, socket] = Join();
  auto [raw_short, short_socket] = Join();
  std::vector<UnsharedFd> sockets;
  sockets.push_back(std::move(short_socket));
  sockets.push_back(std::move(socket));
  WiredRank rank(1, std::move(sockets));
  const std::string out = Payload(kBytes, 1), answer = Payload(kBytes, 2);
  std::string in(kBytes, '?');
  rank.wire().Send(answer.data(), static_cast<std::int64_t>(kBytes), 1);
  rank.Move();
  const FrameHeader header = {.bytes = kBytes, .length = kBytes};
  ASSERT_EQ(send(raw.get(), &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
  ASSERT_EQ(send(raw.get(), out.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  while (!IsDelivered(raw)) std::this_thread::yield();
  shutdown(raw.get(), SHUT_WR);
  raw = UnsharedFd();  // with unread bytes, so that the kernel refuses what comes from now on
  rank.wire().Send(answer.data(), static_cast<std::int64_t>(kBytes), 2);
  rank.wire().Receive(0, in.data(), kBytes, 3);
  while (rank.Move()) {
  }
  EXPECT_EQ(rank.received, std::vector<std::uint32_t>{3});
  EXPECT_TRUE(in == out);
  EXPECT_TRUE(rank.wire().broken());
}

// A receive may be posted long after the peer has left.
TEST(WireBroken, WhatHasComeWholeOutlivesTheWire) {
  Attacked attacked;
  std::string whole(1000, '?'), part(1000, '?');
  attacked.Frame({.number = 0, .bytes = 1000, .length = 1000}, Payload(1000, 1));
  attacked.Frame({.number = 1, .bytes = 1000, .length = 900}, Payload(900, 2));
  attacked.Frame({.number = 2, .bytes = 1000, .length = 1000}, Payload(1000, 3));
  attacked.Close(0);
  attacked.ExpectBroken("closed its connection");
  attacked.wire().Close();
  EXPECT_TRUE(attacked.wire().Receive(0, whole.data(), 1000, 7));
  EXPECT_FALSE(attacked.wire().Receive(1, part.data(), 1000, 8));
  attacked.wire().Discard(2, 1000);
  EXPECT_FALSE(attacked.wire().Receive(2, part.data(), 1000, 9));
  EXPECT_FALSE(attacked.rank().Move());
  EXPECT_EQ(attacked.rank().received, std::vector<std::uint32_t>{7});
  EXPECT_TRUE(whole == Payload(1000, 1));
  EXPECT_TRUE(part == std::string(1000, '?'));
  EXPECT_FALSE(attacked.wire().is_busy());
}

// Reads end anywhere in a stream of small frames, also where the bytes of one Progress are used up.
TEST(WireBroken, EveryCutOfAStreamIsReadToItsEnd) {
  constexpr std::size_t kBudget = 512 << 10;
  std::minstd_rand random(1);
  for (int round = 0; round < 40; ++round) {
    Attacked attacked;
    std::string stream;
    std::vector<std::string> out, in;
    while (stream.size() < kBudget + 10'000) {
      // The first frame ends so that the headers that follow lie around the end of the budget.
      const std::size_t bytes =
          out.empty() ? kBudget - 32 - static_cast<std::size_t>(round) * 7 : 1 + random() % (round % 2 == 0 ? 3 : 3000);
      const FrameHeader header = {.number = static_cast<std::uint32_t>(out.size()),
                                  .bytes = static_cast<std::int64_t>(bytes),
                                  .length = static_cast<std::int64_t>(bytes)};
      out.push_back(Payload(bytes, out.size()));
      stream += std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + out.back();
    }
    for (const std::string& message : out) in.emplace_back(message.size(), '?');
    for (std::size_t i = 0; i < out.size(); ++i) {
      attacked.wire().Receive(static_cast<std::uint32_t>(i), in[i].data(), static_cast<std::int64_t>(in[i].size()), 1);
    }
    const std::size_t cut = round % 3 == 0 ? stream.size() : kBudget - random() % 100;
    ASSERT_TRUE(attacked.Write(stream.substr(0, cut)));
    ASSERT_TRUE(attacked.Write(stream.substr(cut)));
    ASSERT_EQ(attacked.rank().received.size(), out.size());
    ASSERT_TRUE(in == out);
  }
}

// Frames and calls at random, most of them almost right: whatever comes, nothing is written beside the receives.
TEST(WireBroken, RandomFramesTouchNoMemoryBeside) {
  constexpr std::size_t kMessages = 4;
  constexpr std::size_t kBytes = 3000;
  std::minstd_rand random(7);
  int broken = 0;
  for (int round = 0; round < 1000; ++round) {
    Attacked attacked(1 + round % 2);
    std::vector<Guarded> in(kMessages, Guarded(kBytes));
    const std::string out = Payload(kBytes, 5);
    attacked.wire().Send(out.data(), kBytes, 100);
    for (int step = 0; step < 30 && !attacked.wire().broken(); ++step) {
      const auto number = static_cast<std::uint32_t>(random() % kMessages);
      switch (random() % 8) {
        case 0:
          attacked.wire().Receive(number, in[number].data(), kBytes, number);
          break;
        case 1:
          attacked.wire().Discard(number, random() % 4 == 0 ? 1000 : kBytes);
          break;
        case 2:
          attacked.wire().Drop([&](std::uint32_t operation) { return operation == number; });
          break;
        default: {
          FrameHeader header = {.number = number, .bytes = kBytes};
          header.offset = static_cast<std::int64_t>(random() % kBytes);
          header.length = 1 + static_cast<std::int64_t>(random()) % (static_cast<std::int64_t>(kBytes) - header.offset);
          const std::string payload = Payload(static_cast<std::size_t>(header.length), step);
          if (random() % 16 == 0) header.kind = Kind::kMatched;
          if (random() % 8 == 0) reinterpret_cast<unsigned char*>(&header)[random() % sizeof(header)] ^= 0x11;
          attacked.Frame(header, payload.substr(0, random() % 8 == 0 ? random() % payload.size() : payload.size()),
                         random() % (1 + round % 2));
        }
      }
      attacked.Settle();
    }
    broken += attacked.wire().broken().has_value() ? 1 : 0;
    for (const Guarded& memory : in) ASSERT_TRUE(memory.intact()) << "round " << round;
  }
  EXPECT_GT(broken, 500);
}

}  // namespace
}  // namespace tutti::ucx
