#include "transports/ucx/short_wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "tests/transports/wire_pair.h"
#include "transports/ucx/early_buffers.h"

namespace tutti::ucx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Keeps what comes over a short wire; the payload of a frame whose tag is kUnwanted is not wanted.
struct Recorder : ShortReceiver {
  static constexpr std::uint64_t kUnwanted = 666;
  static constexpr std::uint64_t kWrong = 667;  // of a frame that breaks the receiver's rules
  struct Frame {
    ShortHeader header;
    std::string payload;
    bool whole = false;
  };

  std::byte* BeginFrame(Rank peer, const ShortHeader& header) override {
    EXPECT_EQ(peer, 5);
    frames.push_back({header, std::string(static_cast<std::size_t>(header.payload()), '?')});
    return header.tag == kUnwanted ? nullptr : reinterpret_cast<std::byte*>(frames.back().payload.data());
  }
  bool EndFrame(Rank /*peer*/, const ShortHeader& header) override {
    EXPECT_EQ(std::memcmp(&header, &frames.back().header, sizeof(header)), 0);
    frames.back().whole = true;
    return header.tag != kWrong;
  }

  std::vector<Frame> frames;
};

// A short wire, and the other end of its connection, which has little room.
struct Ends {
  explicit Ends(std::array<UnsharedFd, 2> ends = Join(/*buffer=*/4096))
      : wire(5, std::move(ends[0]), news), other(std::move(ends[1])) {}

  // Moves all that has come, into a buffer of `bytes` bytes.
  void Receive(std::size_t bytes = 4096) {
    std::vector<std::byte> buffer(bytes);
    do wire.SetReady(true, false, false);
    while (wire.Progress(absl::MakeSpan(buffer), recorder));
  }
  void Say(const void* data, std::size_t bytes) {
    ASSERT_EQ(send(other.get(), data, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  void Say(const ShortHeader& header, const std::string& payload = "") {
    const std::string text = std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
    Say(text.data(), text.size());
  }

  WireNews news;
  Recorder recorder;
  ShortWire wire;
  UnsharedFd other;
};

std::uint32_t NoOperation() {
  ADD_FAILURE() << "the kernel has no room";
  return 0;
}

// A wire that sends to another; both are driven until nothing moves.
struct Pair {
  explicit Pair(int buffer) : Pair(Join(buffer)) {}

  void MoveAll(std::size_t bytes = 4096) {
    std::vector<std::byte> buffer(bytes);
    for (int idle = 0; idle < 3;) {
      for (ShortWire* const wire : {&from, &to}) wire->SetReady(true, true, false);
      const bool moved = from.Progress(absl::MakeSpan(buffer), nothing);
      const bool came = to.Progress(absl::MakeSpan(buffer), recorder);
      idle = moved || came || !from.IsDelivered() ? 0 : idle + 1;
    }
  }

  WireNews from_news, to_news;
  NoShortReceiver nothing;
  Recorder recorder;
  ShortWire from, to;

 private:
  explicit Pair(std::array<UnsharedFd, 2> ends)
      : from(9, std::move(ends[0]), from_news), to(5, std::move(ends[1]), to_news) {}
};

TEST(ShortWire, AMessageThatTheKernelTakesLeavesAtOnce) {
  Pair pair(/*buffer=*/0);
  const std::string out = Payload(1000, 1);
  EXPECT_TRUE(pair.from.Send(7, out.data(), 1000, NoOperation));
  EXPECT_TRUE(pair.from.Send(8, nullptr, 0, NoOperation));
  pair.MoveAll();
  ASSERT_EQ(pair.recorder.frames.size(), 2u);
  EXPECT_TRUE(pair.recorder.frames[0].whole && pair.recorder.frames[1].whole);
  EXPECT_EQ(pair.recorder.frames[0].header.tag, 7u);
  EXPECT_TRUE(pair.recorder.frames[0].payload == out);
  EXPECT_EQ(pair.recorder.frames[1].header.tag, 8u);
  EXPECT_TRUE(pair.from_news.ended.empty());
}

TEST(ShortWire, WhatDoesNotFitWaitsAndArrivesInItsOrder) {
  for (const std::size_t buffer : {std::size_t{1}, std::size_t{25}, std::size_t{5000}, std::size_t{64 << 10}}) {
    Pair pair(/*buffer=*/4096);
    std::vector<std::string> out;
    std::vector<std::uint32_t> waiting;
    for (std::uint32_t i = 0; i < 100; ++i) {
      const std::size_t bytes = std::array<std::size_t, 7>{0, 1, 24, 4000, 4096, 20'000, kMaxShort}[i % 7];
      out.push_back(Payload(bytes, i));
    }
    for (std::uint32_t i = 0; i < 100; ++i) {
      const bool left = pair.from.Send(i, out[i].data(), static_cast<std::int64_t>(out[i].size()), [&] {
        waiting.push_back(i);
        return i;
      });
      EXPECT_EQ(left, waiting.empty() || waiting.back() != i);
      if (i % 10 == 0) pair.from.Announce(i, 100'000 + i, i);
      if (i % 25 == 0) {
        Control control;
        control.kind = Control::Kind::kNote;
        control.from = 9;
        control.group = i;
        pair.from.Tell(control);
      }
    }
    EXPECT_GT(waiting.size(), 50u);
    EXPECT_EQ(pair.from_news.unawaited, 9 + 3) << "announcements and notes, but the first, which left at once";
    pair.MoveAll(buffer);
    EXPECT_EQ(pair.from_news.unawaited, 0);
    std::vector<std::uint32_t> ended;
    for (const WireEnd& end : pair.from_news.ended) ended.push_back(end.operation);
    EXPECT_EQ(ended, waiting);
    auto frame = pair.recorder.frames.begin();
    ASSERT_EQ(pair.recorder.frames.size(), 114u);
    for (std::uint32_t i = 0; i < 100; ++i, ++frame) {
      ASSERT_TRUE(frame->whole && frame->header.tag == i && frame->payload == out[i]) << i;
      if (i % 10 == 0) {
        ++frame;
        EXPECT_EQ(frame->header.kind, ShortHeader::Kind::kAnnounced);
        EXPECT_EQ(frame->header.number, i);
        EXPECT_EQ(frame->header.bytes, 100'000 + i);
      }
      if (i % 25 == 0) {
        ++frame;
        const std::optional<Control> control = Decode(frame->payload.data(), frame->payload.size());
        ASSERT_TRUE(control.has_value());
        EXPECT_EQ(control->group, i);
      }
    }
  }
}

TEST(ShortWire, PayloadThatNobodyWantsIsThrownAwayAndTheNextFrameIsWhole) {
  Pair pair(/*buffer=*/4096);
  const std::string out = Payload(kMaxShort, 1);
  const auto any = [] { return 0u; };
  pair.from.Send(Recorder::kUnwanted, out.data(), kMaxShort, any);
  pair.from.Send(1, out.data(), 100, any);
  pair.MoveAll(300);
  ASSERT_EQ(pair.recorder.frames.size(), 2u);
  EXPECT_EQ(pair.recorder.frames[0].payload, std::string(kMaxShort, '?'));
  EXPECT_EQ(pair.recorder.frames[1].payload, out.substr(0, 100));
}

TEST(ShortWire, AMessageThatIsUnwantedFromItsMiddleOnLeavesMemoryAlone) {
  Ends ends;
  const std::string out = Payload(2000, 1);
  ends.Say({.tag = 1, .bytes = 2000}, out.substr(0, 500));
  while (!ends.wire.is_in_message()) ends.Receive();
  ends.Receive();
  ends.wire.Unwanted();
  ends.Say(out.data() + 500, 1500);
  ends.Say({.tag = 2, .bytes = 3}, "abc");
  while (ends.recorder.frames.size() < 2 || !ends.recorder.frames[1].whole) ends.Receive();
  EXPECT_TRUE(ends.recorder.frames[0].whole);
  EXPECT_EQ(ends.recorder.frames[0].payload.substr(500), std::string(1500, '?'));
  EXPECT_EQ(ends.recorder.frames[1].payload, "abc");
  EXPECT_FALSE(ends.wire.is_in_message());
}

TEST(ShortWire, WhatIsNoFrameEndsTheWire) {
  using Kind = ShortHeader::Kind;
  const std::vector<ShortHeader> wrongs = {
      {.kind = Kind{0}},
      {.kind = Kind{0x34535454}},
      {.tag = 1, .bytes = -1},
      {.tag = 1, .bytes = kMaxShort + 1},
      {.tag = std::uint64_t{1} << kTagBits, .bytes = 1},
      {.kind = Kind::kAnnounced, .bytes = kMaxShort},
      {.kind = Kind::kAnnounced, .bytes = -5},
      {.kind = Kind::kAnnounced, .tag = std::uint64_t{1} << kTagBits, .bytes = 100'000},
      {.kind = Kind::kControl, .bytes = 0},
      {.kind = Kind::kControl, .bytes = sizeof(ControlFrame) + 1},
      {.kind = Kind::kControl, .bytes = std::numeric_limits<std::int64_t>::max()},
  };
  for (const ShortHeader& wrong : wrongs) {
    Ends ends;
    ends.Say({.tag = 3, .bytes = 2}, "ok");
    ends.Say(wrong, std::string(100, 'x'));
    while (!ends.wire.ended()) ends.Receive();
    EXPECT_EQ(*ends.wire.ended(), "it sent what is no frame") << &wrong - wrongs.data();
    EXPECT_FALSE(ends.wire.sends());
    EXPECT_THAT(ends.news.short_ended, ElementsAre(5));
    ASSERT_EQ(ends.recorder.frames.size(), 1u);
    EXPECT_EQ(ends.recorder.frames[0].payload, "ok");
  }
}

TEST(ShortWire, AFrameThatItsReceiverRefusesEndsTheWire) {
  Ends ends;
  ends.Say({.tag = Recorder::kWrong, .bytes = 2}, "no");
  ends.Say({.tag = 3, .bytes = 2}, "ok");
  while (!ends.wire.ended()) ends.Receive();
  EXPECT_EQ(*ends.wire.ended(), "it sent what is no control message");
  EXPECT_EQ(ends.recorder.frames.size(), 1u);
}

TEST(ShortWire, ThePeersEndIsHeardBehindAllThatItSent) {
  for (const bool in_the_middle : {false, true}) {
    Ends ends;
    ends.Say({.tag = 3, .bytes = 2}, "ok");
    if (in_the_middle) ends.Say({.tag = 4, .bytes = 2}, "o");
    ends.other = UnsharedFd();
    ends.wire.SetReady(true, true, true);
    while (!ends.wire.ended()) ends.Receive();
    EXPECT_THAT(*ends.wire.ended(), HasSubstr("it closed its connection"));
    ASSERT_EQ(ends.recorder.frames.size(), in_the_middle ? 2u : 1u);
    EXPECT_TRUE(ends.recorder.frames[0].whole);
    EXPECT_EQ(ends.recorder.frames.back().whole, !in_the_middle);
    EXPECT_FALSE(ends.wire.sends());
    EXPECT_TRUE(ends.wire.IsDelivered());
  }
}

// A rank that finds the end of the connection as it sends still reads the messages that its peer had sent before.
TEST(ShortWire, ASendToAPeerThatHasClosedLosesNothingFromIt) {
  Ends ends;
  ends.Say({.tag = 3, .bytes = 2}, "ok");
  ends.other = UnsharedFd();
  const std::string out = Payload(kMaxShort, 1);
  for (int i = 0; i < 100; ++i) {
    ends.wire.SetReady(false, true, false);
    ends.wire.Send(1, out.data(), kMaxShort, [] { return 0u; });
  }
  while (!ends.wire.ended()) ends.Receive();
  ASSERT_EQ(ends.recorder.frames.size(), 1u);
  EXPECT_EQ(ends.recorder.frames[0].payload, "ok");
}

TEST(ShortWire, WhatIsForgottenIsNotRead) {
  Pair pair(/*buffer=*/4096);
  auto out = std::make_unique<std::string>(Payload(kMaxShort, 1));
  int waiting = 0;
  for (int i = 0; i < 10; ++i) {
    pair.from.Send(1, out->data(), kMaxShort, [&] {
      ++waiting;
      return 0u;
    });
  }
  Control control;
  control.from = 9;
  pair.from.Tell(control);
  EXPECT_GT(waiting, 5);
  pair.from.ForgetSends();
  out.reset();  // a sanitizer would tell of a read
  EXPECT_FALSE(pair.from.sends());
  EXPECT_EQ(pair.from_news.unawaited, 0);
  pair.from.Tell(control);
  EXPECT_EQ(pair.from_news.unawaited, 0);
  pair.MoveAll();
  EXPECT_TRUE(pair.from_news.ended.empty());
}

TEST(EarlyBuffers, MemoryIsUsedAgainAndLittleIsKept) {
  EarlyBuffers buffers;
  std::vector<EarlyMemory> taken;
  for (int i = 0; i < 100; ++i) taken.push_back(buffers.Take(kMaxShort));
  std::vector<const std::byte*> addresses;
  for (EarlyMemory& memory : taken) {
    std::memset(memory.get(), 1, kMaxShort);
    addresses.push_back(memory.get());
    buffers.Return(std::move(memory), kMaxShort);
  }
  int again = 0;
  for (EarlyMemory& memory : taken) {
    memory = buffers.Take(kMaxShort);
    again += std::find(addresses.begin(), addresses.begin() + 32, memory.get()) != addresses.begin() + 32 ? 1 : 0;
  }
  EXPECT_EQ(again, 32) << "four megabytes are kept, in blocks of 128 KiB";
  for (std::int64_t bytes = 0; bytes <= kMaxShort; bytes = bytes * 3 / 2 + 1) {
    EarlyMemory memory = buffers.Take(bytes);
    std::memset(memory.get(), 1, static_cast<std::size_t>(bytes));  // a sanitizer would tell of too little
    buffers.Return(std::move(memory), bytes);
  }
}

}  // namespace
}  // namespace tutti::ucx
