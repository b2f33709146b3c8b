#include "transports/ucx/wire.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/transports/wire_pair.h"

namespace tutti::ucx {
namespace {

constexpr std::size_t kWindow = Wire::kMaxWindow;
constexpr std::size_t kFrame = 128 << 10;

using testing::Values;

// A message of these tests, whose operation, of the Send and of the Recv, is its place among the messages.
struct Message {
  explicit Message(std::size_t bytes, std::uint64_t seed) : out(Payload(bytes, seed)), in(bytes, '?') {}

  std::string out;
  std::string in;
  std::uint32_t number = 0;
};

struct Messages : std::vector<Message> {
  using std::vector<Message>::vector;

  void SendAll(Wire& wire) {
    for (std::size_t i = 0; i < size(); ++i) Send(wire, i);
  }
  void Send(Wire& wire, std::size_t i) {
    Message& message = (*this)[i];
    message.number = wire.Send(message.out.data(), Bytes(i), static_cast<std::uint32_t>(i));
  }
  void Receive(Wire& wire, std::size_t i) {
    Message& message = (*this)[i];
    wire.Receive(message.number, message.in.data(), Bytes(i), static_cast<std::uint32_t>(i));
  }
  void Discard(Wire& wire, std::size_t i) { wire.Discard((*this)[i].number, Bytes(i)); }
  void ExpectArrived(std::size_t i) const {
    EXPECT_TRUE((*this)[i].in == (*this)[i].out) << "message " << i << " of " << (*this)[i].out.size() << " bytes";
  }

 private:
  std::int64_t Bytes(std::size_t i) const { return static_cast<std::int64_t>((*this)[i].out.size()); }
};

Messages OfSizes(const std::vector<std::size_t>& sizes) {
  Messages messages;
  for (const std::size_t bytes : sizes) messages.emplace_back(bytes, messages.size());
  return messages;
}

bool Contains(const std::vector<std::uint32_t>& operations, std::uint32_t operation) {
  return std::find(operations.begin(), operations.end(), operation) != operations.end();
}

// Each of the first `count` operations has ended exactly once.
void ExpectEachOnce(std::vector<std::uint32_t> operations, std::size_t count) {
  std::sort(operations.begin(), operations.end());
  std::vector<std::uint32_t> each(count);
  std::iota(each.begin(), each.end(), 0u);
  EXPECT_EQ(operations, each);
}

class WireTest : public testing::TestWithParam<int> {};  // by the number of connections
INSTANTIATE_TEST_SUITE_P(, WireTest, Values(1, 2, 5));

TEST_P(WireTest, CarriesEverySizeWheneverItsReceiveIsPosted) {
  const std::vector<std::size_t> sizes = {1,    31,         32,     33,         4095,       4096,
                                          4097, kFrame - 1, kFrame, kFrame + 1, 3 * kFrame, kWindow - 1};
  const std::vector<std::size_t> beyond = {kWindow, kWindow + 1, 2 * kWindow + 7};
  WirePair ranks(GetParam());
  const auto carry = [&](std::size_t bytes, const std::function<void()>& before_receive) {
    Messages one = OfSizes({bytes});
    one.SendAll(ranks.a.wire());
    before_receive();
    one.Receive(ranks.b.wire(), 0);
    ranks.MoveUntil([&] { return !ranks.a.sent.empty() && !ranks.b.received.empty(); });
    one.ExpectArrived(0);
    ExpectEachOnce(std::exchange(ranks.a.sent, {}), 1);
    ExpectEachOnce(std::exchange(ranks.b.received, {}), 1);
  };
  for (const std::size_t bytes : sizes) {
    carry(bytes, [] {});
    carry(bytes, [&] { ranks.a.Move(); });
    carry(bytes, [&] { ranks.a.Move(), ranks.b.Move(); });
    carry(bytes, [&] { ranks.MoveAll(); });
  }
  for (const std::size_t bytes : beyond) {
    carry(bytes, [] {});
    carry(bytes, [&] { ranks.MoveAll(); });
  }
  ranks.MoveAll();
  EXPECT_FALSE(ranks.a.wire().is_busy() || ranks.b.wire().is_busy());
  EXPECT_FALSE(ranks.a.wire().broken() || ranks.b.wire().broken());
}

// Messages both ways, whose receives are posted in another order than that of the sends, while messages arrive.
TEST_P(WireTest, ReceivesMayBePostedInAnyOrderAtAnyTime) {
  constexpr std::size_t kMessages = 150;
  std::minstd_rand random(static_cast<unsigned>(GetParam()));
  WirePair ranks(GetParam());
  const auto messages = [&] {
    std::vector<std::size_t> sizes(kMessages);
    for (std::size_t& bytes : sizes) bytes = 1 + random() % (random() % 8 == 0 ? 900'000 : 40'000);
    return OfSizes(sizes);
  };
  Messages from_a = messages(), from_b = messages();
  from_a.SendAll(ranks.a.wire());
  from_b.SendAll(ranks.b.wire());
  std::vector<std::size_t> order(kMessages);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  for (const std::size_t i : order) {
    from_a.Receive(ranks.b.wire(), i);
    from_b.Receive(ranks.a.wire(), kMessages - 1 - i);
    for (auto moves = random() % 4; moves > 0; --moves) random() % 2 == 0 ? ranks.a.Move() : ranks.b.Move();
  }
  const auto ended = [&](const WiredRank& rank) {
    return rank.sent.size() == kMessages && rank.received.size() == kMessages;
  };
  ranks.MoveUntil([&] { return ended(ranks.a) && ended(ranks.b); });
  for (const WiredRank* rank : {&ranks.a, &ranks.b}) {
    ExpectEachOnce(rank->sent, kMessages);
    ExpectEachOnce(rank->received, kMessages);
  }
  for (std::size_t i = 0; i < kMessages; ++i) {
    from_a.ExpectArrived(i);
    from_b.ExpectArrived(i);
  }
}

TEST_P(WireTest, NoMoreThanTheWindowComesBeforeItsReceiveIsPosted) {
  WirePair ranks(GetParam());
  Messages messages = OfSizes({5'000'000, 5'000'000, 5'000'000, 40'000'000});
  messages.SendAll(ranks.a.wire());
  ranks.MoveAll();
  EXPECT_EQ(ranks.a.sent, std::vector<std::uint32_t>{0});
  // A message whose receive is posted overtakes those before it, and comes whole, whatever its length.
  messages.Receive(ranks.b.wire(), 3);
  ranks.MoveUntil([&] { return !ranks.b.received.empty(); });
  EXPECT_EQ(ranks.b.received, std::vector<std::uint32_t>{3});
  messages.ExpectArrived(3);
  ranks.MoveAll();
  EXPECT_EQ(ranks.a.sent, (std::vector<std::uint32_t>{0, 3}));
  for (const std::size_t i : {2u, 0u, 1u}) messages.Receive(ranks.b.wire(), i);
  ranks.MoveUntil([&] { return ranks.b.received.size() == 4 && ranks.a.sent.size() == 4; });
  for (std::size_t i = 0; i < 4; ++i) messages.ExpectArrived(i);
}

TEST_P(WireTest, AMessageThatNobodyReceivesStopsNoOther) {
  constexpr std::size_t kOthers = 500;
  WirePair ranks(GetParam());
  Messages messages = OfSizes({2 * kWindow});
  messages.reserve(1 + kOthers);
  messages.SendAll(ranks.a.wire());
  ranks.MoveAll();
  for (std::size_t i = 1; i <= kOthers; ++i) {
    messages.emplace_back(40'000, i);
    messages.Send(ranks.a.wire(), i);
    messages.Receive(ranks.b.wire(), i);
    if (i % 10 == 0) ranks.MoveUntil([&] { return ranks.b.received.size() == i && ranks.a.sent.size() == i; });
  }
  for (std::size_t i = 1; i <= kOthers; ++i) messages.ExpectArrived(i);
  EXPECT_FALSE(Contains(ranks.a.sent, 0));
  messages.Receive(ranks.b.wire(), 0);
  ranks.MoveUntil([&] { return ranks.b.received.size() == 1 + kOthers; });
  messages.ExpectArrived(0);
}

TEST_P(WireTest, AShortMessageDoesNotWaitForALongOne) {
  for (const bool matched : {false, true}) {
    WirePair ranks(GetParam(), 70'000);
    Messages messages = OfSizes({48 << 20, 40'000, 64 << 10, 3 << 20});
    messages.Send(ranks.a.wire(), 0);
    messages.Receive(ranks.b.wire(), 0);
    ranks.MoveUntil([&] { return messages[0].in[kWindow + kFrame] != '?'; });  // the sender knows of the receive
    for (std::size_t i = 1; i < messages.size(); ++i) {
      messages.Send(ranks.a.wire(), i);
      if (matched) messages.Receive(ranks.b.wire(), i);
    }
    ranks.MoveUntil([&] {
      if (!matched && messages[0].in[2 * kWindow] != '?' && !Contains(ranks.b.received, 1)) {
        for (std::size_t i = 1; i < messages.size(); ++i) messages.Receive(ranks.b.wire(), i);
      }
      return ranks.b.received.size() == messages.size() - 1;
    });
    EXPECT_FALSE(Contains(ranks.b.received, 0));
    EXPECT_EQ(messages[0].in[40 << 20], '?');
    ranks.MoveUntil([&] { return ranks.b.received.size() == messages.size(); });
    for (std::size_t i = 0; i < messages.size(); ++i) messages.ExpectArrived(i);
  }
}

// The number of messages is large enough that a sender that looks at all of them again and again would be seen to.
TEST_P(WireTest, WhoeverKeepsAMessageForNobodyForgetsTheOthers) {
  WirePair ranks(GetParam());
  Messages stuck = OfSizes({2 * kWindow, 100});
  stuck.SendAll(ranks.a.wire());
  ranks.MoveAll();
  const std::string out = Payload(1, 7);
  std::string in(1, '?');
  for (std::uint32_t i = 2; i < 10'000; ++i) {
    const std::uint32_t number = ranks.a.wire().Send(out.data(), 1, i);
    ranks.b.wire().Receive(number, in.data(), 1, i);
    if (i % 1000 == 0) ranks.MoveUntil([&] { return ranks.b.received.size() == i - 1; });
  }
}

TEST_P(WireTest, WhatIsDiscardedComesAndIsThrownAway) {
  WirePair ranks(GetParam());
  Messages messages = OfSizes({3'000'000, 3'000'000, 3 * kWindow, 3 * kWindow, 70'000});
  messages.SendAll(ranks.a.wire());
  messages.Discard(ranks.b.wire(), 1);
  ranks.MoveAll();
  messages.Discard(ranks.b.wire(), 0);  // which has come by now
  messages.Discard(ranks.b.wire(), 2);  // which has begun to come
  messages.Discard(ranks.b.wire(), 3);  // which has not
  messages.Receive(ranks.b.wire(), 4);
  ranks.MoveUntil([&] { return ranks.a.sent.size() == 5 && ranks.b.received.size() == 1; });
  EXPECT_EQ(ranks.b.received, std::vector<std::uint32_t>{4});
  messages.ExpectArrived(4);
  EXPECT_FALSE(ranks.b.wire().is_busy());
}

TEST_P(WireTest, CountsMessagesThatHaveComeWholeWhateverBecomesOfThem) {
  WirePair ranks(GetParam());
  Messages messages = OfSizes({100'000, 100'000, 100'000, 3 * kWindow});
  messages.SendAll(ranks.a.wire());
  EXPECT_EQ(ranks.a.wire().messages_sent(), 4u);
  EXPECT_EQ(ranks.b.wire().messages_received(), 0u);
  messages.Discard(ranks.b.wire(), 0);
  messages.Receive(ranks.b.wire(), 1);
  ranks.MoveAll();
  EXPECT_EQ(ranks.b.wire().messages_received(), 3u) << "the message without a receive, too";
  messages.Receive(ranks.b.wire(), 3);
  ranks.MoveUntil([&] { return ranks.b.received.size() == 2; });
  EXPECT_EQ(ranks.b.wire().messages_received(), 4u);
  messages.Receive(ranks.b.wire(), 2);
  EXPECT_EQ(ranks.b.wire().messages_received(), 4u);
}

TEST_P(WireTest, NothingIsWrittenToTheMemoryOfAReceiveThatIsDropped) {
  WirePair ranks(GetParam());
  Messages messages = OfSizes({10'000'000, 10'000'000, 70'000});
  messages.SendAll(ranks.a.wire());
  for (std::size_t i = 0; i < 3; ++i) messages.Receive(ranks.b.wire(), i);
  while (messages[0].in[2'000'000] == '?' && messages[0].in[2'000'001] == '?') ranks.a.Move(), ranks.b.Move();
  ranks.b.wire().Drop([](std::uint32_t operation) { return operation < 2; });
  for (std::size_t i = 0; i < 2; ++i) std::fill(messages[i].in.begin(), messages[i].in.end(), 'p');
  ranks.MoveUntil([&] { return ranks.a.sent.size() == 3 && ranks.b.received.size() == 1; });
  EXPECT_EQ(ranks.b.received, std::vector<std::uint32_t>{2});
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(messages[i].in == std::string(10'000'000, 'p'));
  messages.ExpectArrived(2);
  EXPECT_FALSE(ranks.b.wire().is_busy());
}

// The memory of a Send is its owner's again from its end on.
TEST_P(WireTest, WhatIsWrittenToTheMemoryOfASendThatHasEndedIsNotSent) {
  WirePair ranks(GetParam(), /*buffer=*/16 << 10);
  Messages messages = OfSizes(std::vector<std::size_t>(30, 300'000));
  std::vector<std::string> expected;
  for (const Message& message : messages) expected.push_back(message.out);
  messages.SendAll(ranks.a.wire());
  for (std::size_t i = 0; i < messages.size(); ++i) messages.Receive(ranks.b.wire(), i);
  std::size_t seen = 0;
  ranks.MoveUntil([&] {
    for (; seen < ranks.a.sent.size(); ++seen) {
      std::string& out = messages[ranks.a.sent[seen]].out;
      std::fill(out.begin(), out.end(), 'p');
    }
    return ranks.b.received.size() == messages.size();
  });
  for (std::size_t i = 0; i < messages.size(); ++i) EXPECT_TRUE(messages[i].in == expected[i]) << i;
}

// Buffers of the kernel that are smaller than a frame: writes and reads end anywhere in headers and payloads.
TEST_P(WireTest, SmallBuffersOfTheKernelCarryAllTheSame) {
  for (const int buffer : {2304, 5000, 70'000}) {
    WirePair ranks(GetParam(), buffer);
    Messages messages = OfSizes({1, 200'000, 33, kFrame, kFrame - 32, kFrame - 33, 90'001});
    for (WiredRank* rank : {&ranks.a, &ranks.b}) messages.SendAll(rank->wire());
    Messages back = messages;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      messages.Receive(ranks.b.wire(), i);
      back.Receive(ranks.a.wire(), i);
    }
    ranks.MoveUntil([&] { return ranks.a.received.size() == 7 && ranks.b.received.size() == 7; });
    for (std::size_t i = 0; i < messages.size(); ++i) {
      messages.ExpectArrived(i);
      back.ExpectArrived(i);
    }
  }
}

TEST_P(WireTest, AWireThatIsClosedReportsNoEnds) {
  WirePair ranks(GetParam());
  Messages messages = OfSizes({2 * kWindow, 100'000});
  messages.SendAll(ranks.a.wire());
  messages.Receive(ranks.b.wire(), 0);
  ranks.a.Move();
  ranks.b.Move();
  const std::vector<std::uint32_t> sent = ranks.a.sent;
  ranks.a.wire().Close();
  ranks.b.wire().Close();
  for (WiredRank* rank : {&ranks.a, &ranks.b}) {
    EXPECT_FALSE(rank->Move());
    EXPECT_TRUE(rank->wire().broken() && rank->wire().is_closed() && rank->wire().IsDelivered());
    EXPECT_FALSE(rank->wire().is_busy() || rank->wire().is_ready());
  }
  EXPECT_EQ(ranks.a.sent, sent);
  EXPECT_TRUE(ranks.b.received.empty());
}

}  // namespace
}  // namespace tutti::ucx
