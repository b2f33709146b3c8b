// Whatever strangers, liars and slow clients send to its port, the server stays up and serves the ranks of its job.

#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/byte_order.h"
#include "tests/harness/stopped_clock.h"
#include "tests/store/listening_socket.h"
#include "tests/store/raw_store_client.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

class TcpGarbageTest : public testing::Test {
 protected:
  void Start(const TcpStoreServerOptions& options = {}) {
    server_ = TcpStoreServer::Start(job_, options).value();
    rank_ = Connect(job_, 0).value();
    EXPECT_TRUE(rank_->Set("before", "1", Soon()).ok());
  }

  // After each test a rank that was there before is still served, and a new rank gets in.
  void TearDown() override {
    EXPECT_EQ(rank_->Look("before", Soon()).value(), "1");
    auto late = Connect(job_, 1);
    ASSERT_TRUE(late.ok()) << late.status();
    EXPECT_EQ((*late)->Look("before", Soon()).value(), "1");
  }

  absl::StatusOr<std::shared_ptr<Store>> Connect(const JobKey& job, Rank rank) {
    return ConnectTcpStore(server_->address(), job, rank, absl::Now() + absl::Seconds(60));
  }

  const JobKey job_{RandomJobSecret(), "garbage", 2};
  std::unique_ptr<TcpStoreServer> server_;
  std::shared_ptr<Store> rank_;
};

std::string RandomBytes(std::size_t count, std::mt19937_64& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() & 0xff);
  return bytes;
}

TEST_F(TcpGarbageTest, RandomBytes) {
  Start();
  std::mt19937_64 random(1);
  for (std::size_t bytes : {1, 7, 8, 115, 116, 117, 1000, 100000}) {
    RawStoreClient client(server_->address());
    client.Send(RandomBytes(bytes, random)).IgnoreError();
    EXPECT_TRUE(bytes < kClientHelloBytes || client.IsClosed()) << bytes;
  }
}

TEST_F(TcpGarbageTest, RightMagicWrongRest) {
  Start();
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    RawStoreClient client(server_->address());
    std::string hello = RawStoreClient::Hello(job_, 1).substr(0, 8);
    absl::StrAppend(&hello, RandomBytes(kClientHelloBytes - 8, random));
    ASSERT_TRUE(client.Send(hello).ok());
    client.Receive(kServerHelloBytes + kProofBytes);
    client.Send(RandomBytes(round % 2 == 0 ? kProofBytes : 5000, random)).IgnoreError();
    EXPECT_TRUE(client.IsClosed());
  }
}

TEST_F(TcpGarbageTest, RecordedHandshakeIsRefused) {
  Start();
  const std::string hello = RawStoreClient::Hello(job_, 1);
  RawStoreClient honest(server_->address());
  const HandshakeKeys recorded = honest.Join(job_, hello);
  RawStoreClient thief(server_->address());
  ASSERT_TRUE(thief.Send(hello).ok());
  thief.Receive(kServerHelloBytes + kProofBytes);
  ASSERT_TRUE(thief.Send(View(recorded.client_proof)).ok());
  EXPECT_TRUE(thief.IsClosed());
}

// A client sends the server's own proof back to the server.
TEST_F(TcpGarbageTest, ReflectedProofIsRefused) {
  Start();
  RawStoreClient thief(server_->address());
  ASSERT_TRUE(thief.Send(RawStoreClient::Hello(job_, 1)).ok());
  ASSERT_TRUE(thief.Send(thief.Receive(kServerHelloBytes + kProofBytes).substr(kServerHelloBytes)).ok());
  EXPECT_TRUE(thief.IsClosed());
}

TEST_F(TcpGarbageTest, FramesThatDoNotVerifyEndTheConnection) {
  Start();
  const std::string set = Encode(StoreRequest{.op = StoreOp::kSet, .id = 1, .key = "before", .value = "evil"});
  std::string too_long;
  AppendInteger(static_cast<std::uint32_t>(kMaxFrameBytes + 1), too_long);
  for (int attack = 0; attack < 6; ++attack) {
    RawStoreClient client(server_->address());
    const HandshakeKeys keys = client.Join(job_, 1);
    FrameWriter writer(keys.client_to_server);
    std::string bytes;
    switch (attack) {
      case 0:  // longer than allowed
        bytes = too_long;
        break;
      case 1:  // changed on the way
        bytes = writer.Seal(set);
        bytes.back() ^= 1;
        break;
      case 2:  // injected by someone without the key
        bytes = FrameWriter(Key{}).Seal(set);
        break;
      case 3:  // out of order
        writer.Seal(set);
        bytes = writer.Seal(set);
        break;
      case 4:  // sealed for the other direction
        bytes = FrameWriter(keys.server_to_client).Seal(set);
        break;
      case 5:  // sealed well, but no request
        bytes = writer.Seal("\xff garbage");
        break;
    }
    ASSERT_TRUE(client.Send(bytes).ok());
    EXPECT_TRUE(client.IsClosed()) << attack;
  }
}

TEST_F(TcpGarbageTest, ARepeatedFrameEndsTheConnection) {
  Start();
  RawStoreClient client(server_->address());
  FrameWriter writer(client.Join(job_, 1).client_to_server);
  const std::string add = writer.Seal(Encode(StoreRequest{.op = StoreOp::kAdd, .id = 1, .delta = 1, .key = "n"}));
  ASSERT_TRUE(client.Send(absl::StrCat(add, add)).ok());
  EXPECT_TRUE(client.IsClosed());
  EXPECT_EQ(rank_->Look("n", Soon()).value(), "1");
}

TEST_F(TcpGarbageTest, HalfOpenConnectionsMakeRoom) {
  Start({.max_half_open = 4});
  std::vector<std::unique_ptr<RawStoreClient>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawStoreClient>(server_->address()));
  for (int i = 0; i < 14; ++i) EXPECT_TRUE(silent[static_cast<std::size_t>(i)]->IsClosed()) << i;
  EXPECT_TRUE(Connect(job_, 1).ok());
}

// As where many ranks share few processors, so that each waits long for its turn between two messages.
TEST(TcpStoreServerTest, AllRanksMayBeInTheirHandshakesAtOnce) {
  constexpr int kRanks = 200;
  const JobKey job{RandomJobSecret(), "crowd", kRanks};
  const auto server = TcpStoreServer::Start(job, {.handshake_timeout = absl::Seconds(60)}).value();
  std::vector<std::string> hellos;
  std::deque<RawStoreClient> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    hellos.push_back(RawStoreClient::Hello(job, rank));
    ASSERT_TRUE(ranks.emplace_back(server->address()).Send(hellos.back()).ok());
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    RawStoreClient& client = ranks[static_cast<std::size_t>(rank)];
    client.Prove(job, hellos[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(client.welcome().code, absl::StatusCode::kOk) << rank;
  }
}

TEST_F(TcpGarbageTest, AHandshakeThatTakesTooLongIsCutOff) {
  Start({.handshake_timeout = absl::Milliseconds(30)});
  RawStoreClient silent(server_->address());
  RawStoreClient slow(server_->address());
  ASSERT_TRUE(slow.Send(RawStoreClient::Hello(job_, 1).substr(0, 50)).ok());
  EXPECT_TRUE(slow.IsClosed());
  EXPECT_TRUE(silent.IsClosed());
}

// A client sends every message byte by byte, beside ranks that go on.
TEST_F(TcpGarbageTest, SlowClientsAreServedAndStopNobody) {
  Start();
  RawStoreClient slow(server_->address());
  FrameWriter writer(slow.Join(job_, 1).client_to_server);
  for (char byte : writer.Seal(Encode(StoreRequest{.op = StoreOp::kSet, .id = 9, .key = "slow", .value = "v"}))) {
    ASSERT_TRUE(slow.Send(absl::string_view(&byte, 1)).ok());
    ASSERT_TRUE(rank_->Add("others", 1, Soon()).ok());
  }
  EXPECT_EQ(slow.ReceiveResponse().id, 9u);
  EXPECT_EQ(rank_->Look("slow", Soon()).value(), "v");
}

TEST_F(TcpGarbageTest, AClientThatDoesNotReadIsDropped) {
  Start();
  ASSERT_TRUE(rank_->Set("big", std::string(kMaxValueBytes, 'v'), Soon()).ok());
  RawStoreClient greedy(server_->address());
  FrameWriter writer(greedy.Join(job_, 1).client_to_server);
  absl::Status status;
  for (std::uint64_t id = 1; id < 5; ++id) {
    status = greedy.Send(writer.Seal(Encode(StoreRequest{.op = StoreOp::kGet, .id = id, .key = "big"})));
  }
  EXPECT_TRUE(greedy.IsClosed());
}

TEST_F(TcpGarbageTest, MismatchesAreNamed) {
  Start({.one_process_per_rank = true});
  const struct {
    JobKey job;
    Rank rank;
    absl::StatusCode code;
    const char* message;
  } kCases[] = {
      {{RandomJobSecret(), job_.job_id, 2}, 1, absl::StatusCode::kPermissionDenied, "another job secret"},
      {{job_.secret, "other", 2}, 1, absl::StatusCode::kFailedPrecondition, "serves job 'garbage'"},
      {{job_.secret, job_.job_id, 3},
       1,
       absl::StatusCode::kFailedPrecondition,
       "rank 1 has world size 3, the store server has 2"},
      {{job_.secret, job_.job_id, 2}, 2, absl::StatusCode::kFailedPrecondition, "rank 2 is not in a world of 2 ranks"},
      {{job_.secret, job_.job_id, 2}, -1, absl::StatusCode::kFailedPrecondition, "rank -1"},
  };
  for (const auto& [job, rank, code, message] : kCases) {
    absl::Status status = Connect(job, rank).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(std::string(status.message()), HasSubstr(server_->address()));
  }
  EXPECT_TRUE(Connect(job_, 0).ok()) << "the same process may come again";
  RawStoreClient second(server_->address());
  second.Join(job_, RawStoreClient::Hello(job_, 0));
  EXPECT_EQ(second.welcome().code, absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(second.welcome().text, HasSubstr("another process has joined as rank 0"));
}

TEST_F(TcpGarbageTest, AnotherVersionIsNamed) {
  Start();
  RawStoreClient old(server_->address());
  ClientHello hello{.version = 7, .rank = 1, .size = 2, .job = Sha256(job_.job_id)};
  old.Join(job_, Encode(hello));
  EXPECT_EQ(old.welcome().code, absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(old.welcome().text, HasSubstr("rank 1 speaks version 7 of the store protocol, the server version 3"));
}

TEST(TcpStoreTest, ALostServerIsUnavailableForThoseWhoWaitAndThoseWhoCome) {
  const JobKey job{RandomJobSecret(), "lost", 1};
  auto server = TcpStoreServer::Start(job).value();
  const std::string address = server->address();
  auto store = ConnectTcpStore(address, job, 0, absl::Now() + absl::Seconds(60)).value();
  std::thread waiter([&] {
    absl::Status status = store->Get("never", absl::InfiniteFuture()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(address));
  });
  server.reset();
  waiter.join();
  EXPECT_EQ(store->Set("k", "v", Soon()).code(), absl::StatusCode::kUnavailable);
  const StoppedClock stopped;  // a clock that is set back must not make the wait longer
  absl::Status status = ConnectTcpStore(address, job, 0, absl::Now() + absl::Milliseconds(120)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST(TcpStoreTest, AServerThatSaysNothingIsGivenUpInTimeWhateverTheSystemsClockShows) {
  const ListeningSocket silent;
  const StoppedClock stopped;
  absl::Status status =
      ConnectTcpStore(silent.address, {{}, "job", 1}, 0, absl::Now() + absl::Milliseconds(200)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer in time"));
}

TEST(TcpStoreTest, AStrangerInPlaceOfTheServerIsRefused) {
  const JobKey job{RandomJobSecret(), "job", 1};
  auto other = TcpStoreServer::Start({RandomJobSecret(), "job", 1}).value();
  absl::Status status = ConnectTcpStore(other->address(), job, 0, absl::InfiniteFuture()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
}

// The stranger has no secret, and answers as a server would. It must not learn the client's proof, which it could hand
// on to the server.
TEST(TcpStoreTest, AStrangerInPlaceOfTheServerLearnsNothing) {
  const ListeningSocket stranger;
  std::thread client([&] {
    const absl::Status status = ConnectTcpStore(stranger.address, {RandomJobSecret(), "job", 1}, 0, Soon()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  });
  const UniqueFd connection(::accept4(stranger.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const std::int64_t end_ns = NanosAt(Soon());
  EXPECT_TRUE(ReceiveExactly(connection.get(), kClientHelloBytes, end_ns).ok());
  const std::string answer = absl::StrCat(Encode(ServerHello{}), std::string(kProofBytes, 'x'));
  EXPECT_TRUE(SendAll(connection.get(), answer, end_ns).ok());
  client.join();
  const absl::StatusOr<std::string> more = ReceiveSome(connection.get(), 1, end_ns);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kUnavailable) << more.status();
}

TEST(TcpStoreTest, OptionsThatMakeNoSenseAreNamed) {
  const JobKey job{RandomJobSecret(), "job", 1};
  EXPECT_THAT(std::string(TcpStoreServer::Start(job, {.host = "no such host"}).status().message()),
              HasSubstr("no such host"));
  EXPECT_THAT(std::string(TcpStoreServer::Start({job.secret, "job", 0}).status().message()), HasSubstr("size=0"));
  EXPECT_THAT(std::string(TcpStoreServer::Start(job, {.max_half_open = 0}).status().message()),
              HasSubstr("max_half_open=0"));
  auto server = TcpStoreServer::Start(job, {.host = "::1"});
  if (server.ok()) {
    EXPECT_THAT((*server)->address(), testing::StartsWith("[::1]:"));
    EXPECT_TRUE(ConnectTcpStore((*server)->address(), job, 0, absl::Now() + absl::Seconds(60)).ok());
  }
}

}  // namespace
}  // namespace tutti
