#include "transports/ucx/wire_meeting.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/harness/descriptor_limit.h"
#include "tests/transports/sockets_at.h"

namespace tutti::ucx {
namespace {

constexpr std::uint32_t kMagic = 0x32495454;

// What a rank that connects says, as in wire_meeting.h.
struct Introduction {
  std::uint32_t magic = kMagic;
  Rank rank = 1;
  std::uint32_t index = 0;
  std::uint32_t count = 1;
  Nonce nonce = {};
};

struct Member {
  explicit Member(Rank r) : rank(r) {}

  void Begin(const std::vector<const Member*>& others, int connections) {
    std::vector<WireMember> members;
    for (const Member* other : others) members.push_back({other->rank, other->meeting.address(), other->nonce});
    const absl::Status begun = meeting.Begin(rank, nonce, std::move(members), connections);
    EXPECT_TRUE(begun.ok()) << begun;
  }
  bool Advance() {
    const absl::StatusOr<bool> met = meeting.Advance();
    EXPECT_TRUE(met.ok()) << met.status();
    return met.ok() && *met;
  }

  const Rank rank;
  Nonce nonce = NewNonce();
  WireMeeting meeting = WireMeeting::Open("lo").value();
};

// Advances all members, when one of them has something to do, until all have met.
void Meet(const std::vector<Member*>& members) {
  for (;;) {
    bool all = true;
    std::vector<pollfd> fds;
    for (Member* member : members) {
      if (member->Advance()) continue;
      all = false;
      fds.push_back({member->meeting.fd(), POLLIN, 0});
    }
    if (all || testing::Test::HasFailure()) return;
    ASSERT_GT(poll(fds.data(), fds.size(), 60'000), 0) << "the members do not meet";
  }
}

UniqueFd Stranger(const Member& member) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address;
  std::memcpy(&address, member.meeting.address().data(), sizeof(address));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

UniqueFd Say(const Member& member, const Introduction& introduction, std::size_t bytes = sizeof(Introduction)) {
  UniqueFd fd = Stranger(member);
  EXPECT_EQ(send(fd.get(), &introduction, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  return fd;
}

// Whether `member` closes the connection of a stranger; what the stranger has said is taken in first.
bool IsShownTheDoor(Member& member, const UniqueFd& stranger) {
  pollfd closed = {stranger.get(), POLLIN, 0};
  for (int tries = 0; tries < 100; ++tries) {
    EXPECT_FALSE(member.Advance());
    if (poll(&closed, 1, 10) > 0) return true;
  }
  return false;
}

// Each connection of two ranks is one: what is written at one end comes at the other.
void ExpectJoined(std::vector<WireSockets>& ones, Rank one, std::vector<WireSockets>& others, Rank other) {
  const auto to = [](std::vector<WireSockets>& all, Rank peer) -> std::vector<UnsharedFd>& {
    return std::find_if(all.begin(), all.end(), [&](const WireSockets& each) { return each.peer == peer; })->sockets;
  };
  std::vector<UnsharedFd>& here = to(ones, other);
  std::vector<UnsharedFd>& there = to(others, one);
  ASSERT_EQ(here.size(), there.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    const std::string text = absl::StrCat(one, "-", other, "-", i);
    std::string heard(text.size(), '?');
    ASSERT_EQ(send(here[i].get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    pollfd come = {there[i].get(), POLLIN, 0};
    ASSERT_EQ(poll(&come, 1, 60'000), 1);
    ASSERT_EQ(recv(there[i].get(), heard.data(), heard.size(), 0), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(heard, text);
  }
}

TEST(WireMeeting, RanksMeetWithAsManyConnectionsAsTheHigherOneMakes) {
  Member low(0), middle(3), high(7);
  low.Begin({&middle, &high}, 2);
  middle.Begin({&low, &high}, 5);
  high.Begin({&low, &middle}, 1);
  Meet({&low, &middle, &high});
  std::vector<WireSockets> of_low = low.meeting.TakeMet(), of_middle = middle.meeting.TakeMet(),
                           of_high = high.meeting.TakeMet();
  ExpectJoined(of_low, 0, of_middle, 3);
  ExpectJoined(of_low, 0, of_high, 7);
  ExpectJoined(of_high, 7, of_middle, 3);
  EXPECT_EQ(of_low[0].sockets.size(), 5u);
  EXPECT_EQ(of_low[1].sockets.size(), 1u);
  EXPECT_EQ(of_high[1].sockets.size(), 1u);
}

TEST(WireMeeting, WhoHasNobodyToMeetHasMetAll) {
  Member alone(0);
  alone.Begin({}, 1);
  EXPECT_TRUE(alone.Advance());
  EXPECT_TRUE(alone.meeting.TakeMet().empty());
}

// The connections of lower ranks, which only try whether they reach this rank, would else fill the queue of the
// listener, and whoever waits for the meeting would be woken for them again and again.
TEST(WireMeeting, WhoHasMetAllStillTakesConnections) {
  Member low(0), high(1);
  high.Begin({&low}, 1);
  low.Begin({&high}, 1);
  while (!high.Advance()) low.Advance();
  const UniqueFd stranger = Stranger(high);
  EXPECT_TRUE(high.Advance());
  pollfd news = {high.meeting.fd(), POLLIN, 0};
  for (int tries = 0; tries < 100 && poll(&news, 1, 0) > 0; ++tries) EXPECT_TRUE(high.Advance());
  EXPECT_EQ(poll(&news, 1, 0), 0);
  Meet({&low, &high});
}

TEST(WireMeeting, NobodyListensAnyMoreOnceTheMeetingIsOver) {
  Member low(0), high(1);
  low.Begin({&high}, 1);
  high.Begin({&low}, 1);
  sockaddr_in address;
  std::memcpy(&address, low.meeting.address().data(), sizeof(address));
  Meet({&low, &high});
  low.meeting.Close();
  const UniqueFd late(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_NE(connect(late.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

TEST(WireMeeting, StrangersAreShownTheDoorAndTheRanksMeet) {
  Member low(2), high(4);
  low.Begin({&high}, 3);
  const std::vector<std::function<void(Introduction&)>> wrongs = {
      [](Introduction& said) { said.magic = 1; },
      [](Introduction& said) { said.nonce[0] = static_cast<char>(said.nonce[0] ^ 1); },
      [](Introduction& said) { said.nonce[said.nonce.size() - 1] ^= 1; },
      [](Introduction& said) { said.rank = 2; },  // the rank that listens
      [](Introduction& said) { said.rank = 0; },  // a rank that would not connect
      [](Introduction& said) { said.rank = 5; },  // no member
      [](Introduction& said) { said.rank = -1; },
      [](Introduction& said) { said.count = 0; },
      [](Introduction& said) { said.count = kMaxWireConnections + 2; },
      [](Introduction& said) { said.count = 0xFFFFFFFF; },
      [](Introduction& said) { said.index = 3; },
      [](Introduction& said) { said.index = 0xFFFFFFFF; },
  };
  for (const auto& wrong : wrongs) {
    Introduction said = {.rank = 4, .index = 0, .count = 3, .nonce = low.nonce};
    wrong(said);
    const UniqueFd stranger = Say(low, said);
    EXPECT_TRUE(IsShownTheDoor(low, stranger)) << &wrong - wrongs.data();
  }
  high.Begin({&low}, 3);
  Meet({&low, &high});
  std::vector<WireSockets> of_low = low.meeting.TakeMet(), of_high = high.meeting.TakeMet();
  ExpectJoined(of_low, 2, of_high, 4);
}

// Strangers who say nothing fill the port of a rank before the other rank, which is slow, has introduced itself.
TEST(WireMeeting, AConnectionThatEndsUnansweredIsMadeAnew) {
  Member low(0), high(1);
  low.Begin({&high}, 2);
  high.Begin({&low}, 2);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(Stranger(low));
  for (int i = 0; i < 10; ++i) low.Advance();
  EXPECT_FALSE(high.Advance());
  const absl::Time end = absl::Now() + absl::Minutes(1);
  for (bool met = false; !met && absl::Now() < end; absl::SleepFor(absl::Milliseconds(5))) {
    const bool low_met = low.Advance();
    met = high.Advance() && low_met;
  }
  std::vector<WireSockets> of_low = low.meeting.TakeMet(), of_high = high.meeting.TakeMet();
  ASSERT_EQ(of_low.size(), 1u);
  ASSERT_EQ(of_high.size(), 1u);
  ExpectJoined(of_low, 0, of_high, 1);
}

TEST(WireMeeting, ARankThatEndsBeforeItHasAnsweredIsNamed) {
  Member low(0), high(1);
  low.Begin({&high}, 1);
  high.Begin({&low}, 1);
  while (!high.meeting.reached()) EXPECT_FALSE(high.Advance());
  low.meeting.Close();
  absl::StatusOr<bool> met = false;
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (met.ok() && absl::Now() < end) {
    met = high.meeting.Advance();
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_EQ(met.status(), absl::UnavailableError("rank 0 died: it closed its connection, and listens no more"));
}

TEST(WireMeeting, ARankThatConnectsTwiceKeepsItsFirstConnection) {
  Member low(0), high(1);
  low.Begin({&high}, 2);
  const Introduction first = {.rank = 1, .index = 0, .count = 2, .nonce = low.nonce};
  const UniqueFd connection = Say(low, first);
  while (low.meeting.missing() == 1 && !low.Advance()) {
    const UniqueFd again = Say(low, first);
    EXPECT_TRUE(IsShownTheDoor(low, again));
    Introduction another_count = first;
    another_count.index = 1;
    another_count.count = 3;
    EXPECT_TRUE(IsShownTheDoor(low, Say(low, another_count)));
    break;
  }
  EXPECT_EQ(low.meeting.missing(), 1);
  Introduction second = first;
  second.index = 1;
  const UniqueFd other = Say(low, second);
  Meet({&low});
  const std::vector<WireSockets> met = low.meeting.TakeMet();
  ASSERT_EQ(met.size(), 1u);
  EXPECT_EQ(met[0].sockets.size(), 2u);
}

// Strangers who say nothing, or too little, or hang up, keep nobody from meeting, however many there are.
TEST(WireMeeting, SilentStrangersKeepNobodyFromMeeting) {
  Member low(0), high(1);
  low.Begin({&high}, 1);
  const Introduction said = {.rank = 1, .nonce = low.nonce};
  std::vector<UniqueFd> strangers;
  for (std::size_t i = 0; i < 300; ++i) {
    strangers.push_back(i % 2 == 0 ? Stranger(low) : Say(low, said, 1 + i % (sizeof(said) - 1)));
    if (i % 5 == 0) strangers.back().Reset();
    if (i % 10 == 0) low.Advance();
  }
  high.Begin({&low}, 1);
  Meet({&low, &high});
  std::vector<WireSockets> of_low = low.meeting.TakeMet(), of_high = high.meeting.TakeMet();
  ExpectJoined(of_low, 0, of_high, 1);
}

// Strangers leave descriptors to the rest of the rank, which may have no more of them than its peers need.
TEST(WireMeeting, FewStrangersAreKept) {
  constexpr int kHigher = 20, kStrangers = 300;
  Member low(0);
  std::deque<Member> higher;
  std::vector<const Member*> others;
  for (Rank rank = 1; rank <= kHigher; ++rank) others.push_back(&higher.emplace_back(rank));
  low.Begin(others, 1);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < kStrangers; ++i) {
    strangers.push_back(Stranger(low));
    low.Advance();
  }
  low.Advance();
  const auto kept = std::count_if(strangers.begin(), strangers.end(), [](const UniqueFd& stranger) {
    pollfd closed = {stranger.get(), POLLIN, 0};
    return poll(&closed, 1, 0) == 0;
  });
  EXPECT_LE(kept, 64 + kHigher);
  std::vector<Member*> all = {&low};
  for (Member& member : higher) {
    member.Begin({&low}, 1);
    all.push_back(&member);
  }
  Meet(all);
}

TEST(WireMeeting, ARankWithTooFewDescriptorsSaysWhatToRaise) {
  Member low(7), high(9);
  low.Begin({&high}, 1);
  const UniqueFd stranger = Stranger(low);
  absl::Status refused;
  {
    const DescriptorLimit none(0);
    refused = low.meeting.Advance().status();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "rank 7 cannot accept the connections of other ranks: Too many open files; raise the limit (ulimit -n)");
}

// One descriptor is free, for what the meeting waits with.
TEST(WireMeeting, ARankWithTooFewDescriptorsToConnectDoesNotBlameTheOther) {
  Member low(7), high(9);
  absl::Status refused;
  {
    const DescriptorLimit one(1);
    refused = high.meeting.Begin(9, high.nonce, {{7, low.meeting.address(), low.nonce}}, 1);
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "rank 9 cannot make a connection to rank 7: Too many open files; raise the limit (ulimit -n)");
}

// A minute of silence is less than any firewall or load balancer takes to forget a connection.
TEST(WireMeeting, ConnectionsAreKeptAlive) {
  Member low(0), high(1);
  low.Begin({&high}, 1);
  high.Begin({&low}, 1);
  Meet({&low, &high});
  for (Member* member : {&low, &high}) {
    for (const WireSockets& met : member->meeting.TakeMet()) {
      int on = 0, idle = 0;
      socklen_t bytes = sizeof(int);
      EXPECT_EQ(getsockopt(met.sockets[0].get(), SOL_SOCKET, SO_KEEPALIVE, &on, &bytes), 0);
      EXPECT_EQ(getsockopt(met.sockets[0].get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, &bytes), 0);
      EXPECT_EQ(on, 1);
      EXPECT_EQ(idle, 60);
    }
  }
}

// A child would keep open what its parent had connected when the child was forked, and peers would not see the death of
// the parent.
TEST(WireMeeting, NoChildKeepsASocket) {
  Member low(0), middle(1), high(2);
  low.Begin({&middle, &high}, 1);
  middle.Begin({&low}, 1);
  high.Begin({&low}, 1);
  while (!middle.Advance()) low.Advance();
  const std::string& address = low.meeting.address();
  const auto sockets = [&] { return SocketsAt(address).size() + SocketsConnectedTo(address).size(); };
  // The listener, both ends of the connection to the rank that is met, and both ends of one to a rank that has not said
  // yet who it is.
  while (low.meeting.missing() == 1 || sockets() < 5) low.Advance();
  EXPECT_EQ(SocketsKeptByAChild(sockets), 0);
}

// What follows an introduction is left to the wire.
TEST(WireMeeting, WhatIsSentBehindAnIntroductionStays) {
  Member low(0), high(1);
  low.Begin({&high}, 1);
  const Introduction said = {.rank = 1, .nonce = low.nonce};
  const std::string text = std::string(reinterpret_cast<const char*>(&said), sizeof(said)) + "behind";
  const UniqueFd fd = Stranger(low);
  ASSERT_EQ(send(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  Meet({&low});
  const std::vector<WireSockets> met = low.meeting.TakeMet();
  std::array<char, 20> heard;
  EXPECT_EQ(recv(met[0].sockets[0].get(), heard.data(), heard.size(), MSG_DONTWAIT), 6);
}

// Of two ranks each finds out whether the other listens, whoever makes the connections.
TEST(WireMeeting, ARankThatDoesNotListenAnyMoreIsNamed) {
  for (const Rank gone : {3, 12}) {
    Member other(gone), here(8);
    const WireMember member = {gone, other.meeting.address(), other.nonce};
    other.meeting = WireMeeting();
    ASSERT_TRUE(here.meeting.Begin(8, here.nonce, {member}, 1).ok());
    absl::StatusOr<bool> met = false;
    while (met.ok() && !*met) met = here.meeting.Advance();
    EXPECT_EQ(met.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(met.status().message().find(absl::StrCat("rank ", gone, " cannot")), absl::string_view::npos);
    EXPECT_NE(met.status().message().find("127.0.0.1 port "), absl::string_view::npos) << met.status();
    EXPECT_EQ(here.meeting.missing(), gone);
  }
}

// A listener whose queue is full answers nobody, as a firewall that drops packets.
TEST(WireMeeting, ARankThatDoesNotAnswerIsNamed) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const UniqueFd fills(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(fills.get(), reinterpret_cast<const sockaddr*>(&address), bytes), 0);

  const std::string deaf(reinterpret_cast<const char*>(&address), sizeof(address));
  for (const Rank rank : {3, 12}) {
    Member here(8), heard(5);
    ASSERT_TRUE(
        here.meeting.Begin(8, here.nonce, {{5, heard.meeting.address(), heard.nonce}, {rank, deaf, {}}}, 1).ok());
    pollfd up = {here.meeting.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&up, 1, 60'000), 1);  // the connection to rank 5
    EXPECT_FALSE(here.Advance());
    EXPECT_FALSE(here.meeting.reached());
    EXPECT_EQ(here.meeting.Unanswered().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(here.meeting.Unanswered().message().find(absl::StrCat("rank ", rank, " cannot be reached from rank 8")),
              0u)
        << here.meeting.Unanswered();
  }
}

}  // namespace
}  // namespace tutti::ucx
