#include "comm/bootstrap_rendezvous.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/host_name.h"
#include "comm/network_interface.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/mac.h"
#include "store/private_file.h"
#include "store/tcp_client.h"
#include "tests/harness/network_namespace.h"
#include "tests/harness/stopped_clock.h"
#include "tests/store/child_process.h"
#include "tests/store/held_port.h"
#include "tests/store/listening_socket.h"
#include "tests/store/raw_store_client.h"
#include "tests/store/temporary_directory.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }
std::int64_t SoonNanos() { return NanosIn(absl::Seconds(60)); }

Identity Of(Rank rank, int size, int epoch = 0) { return {rank, size, rank, size, "job", "tutti", epoch}; }

std::string OnlyFile(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) return entry.path();
  return "";
}

// Joins as `rank`, as if from another process, and leaves.
void OccupyRank(const std::string& address, const JobKey& job, Rank rank) {
  RawStoreClient client(address);
  client.Join(job, rank);
}

void ExpectRanksMeet(const std::string& directory, const std::optional<JobSecret>& secret) {
  constexpr int kRanks = 3;
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      auto store = JoinOnNode(Of(rank, kRanks), secret, directory, SoonNanos());
      ASSERT_TRUE(store.ok()) << store.status();
      auto blobs = ExchangeBlobs(**store, "x", rank, kRanks, absl::StrCat(rank), Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      EXPECT_THAT(*blobs, testing::ElementsAre("0", "1", "2"));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(OnlyFile(directory), "") << "the file is removed when all have come";
}

TEST(JoinOnNodeTest, RanksMeetThroughAPrivateFile) {
  TemporaryDirectory directory;
  ExpectRanksMeet(directory.path(), std::nullopt);
  ExpectRanksMeet(directory.path(), RandomJobSecret());
}

// A job that crashed while it started leaves a file that leads to nobody, to a stranger, to a live server that has a
// rank of the earlier job, or nonsense. Rank 1 follows the file, is turned away, and finds rank 0 once rank 0 has come.
TEST(JoinOnNodeTest, AStaleFileDoesNotMatter) {
  const JobSecret old_secret = RandomJobSecret();
  auto stranger = TcpStoreServer::Start({RandomJobSecret(), "other", 1}).value();
  auto old_server = TcpStoreServer::Start(StoreKey(Of(0, 2), old_secret), {.one_process_per_rank = true}).value();
  OccupyRank(old_server->address(), StoreKey(Of(0, 2), old_secret), 1);
  std::string closed_address = TcpStoreServer::Start({RandomJobSecret(), "closed", 1}).value()->address();

  for (const std::string& stale :
       {absl::StrCat(closed_address, "\n", ToHex(old_secret), "\n"),
        absl::StrCat(stranger->address(), "\n", ToHex(old_secret), "\n"),
        absl::StrCat(old_server->address(), "\n", ToHex(old_secret), "\n"), std::string("nonsense"), std::string()}) {
    TemporaryDirectory directory;
    ASSERT_TRUE(WritePrivateFile(RendezvousFile(directory.path(), Of(0, 2)), stale).ok());
    std::thread rank_1([&] {
      auto store = JoinOnNode(Of(1, 2), std::nullopt, directory.path(), SoonNanos());
      EXPECT_TRUE(store.ok()) << store.status();
    });
    auto store = JoinOnNode(Of(0, 2), std::nullopt, directory.path(), SoonNanos());
    EXPECT_TRUE(store.ok()) << store.status();
    rank_1.join();
  }
}

// A process that was killed while it joined has left its file, and another process a file that it had not finished. The
// next job, whatever its name, removes both, and no file of a job that lives, nor files that are not Tutti's.
TEST(JoinOnNodeTest, FilesOfDeadJobsAreRemovedByTheNextJob) {
  TemporaryDirectory directory;
  Identity dead = Of(0, 2), alive = Of(0, 2);
  dead.job_id = "dead";
  alive.job_id = "alive";
  ChildProcess process([&](const auto& say) {
    const std::string path = RendezvousFile(directory.path(), dead);
    auto held = HoldPrivateFile(path, "x");
    EXPECT_TRUE(held.ok()) << held.status();
    say(absl::StrCat(::getpid()));
    ::pause();
  });
  const std::string pid = process.NextLine();
  const std::string half_written =
      absl::StrCat(RendezvousFile(directory.path(), dead), "~", HostName(), ".", pid, ".7");
  ASSERT_TRUE(WritePrivateFile(half_written, "").ok());
  ASSERT_TRUE(WritePrivateFile(directory.path() + "/notes-of-a-user", "").ok());
  auto held = HoldPrivateFile(RendezvousFile(directory.path(), alive), "x");
  ASSERT_TRUE(held.ok()) << held.status();

  const auto files = [&] {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) paths.push_back(entry.path());
    return paths;
  };
  const auto join = [&] {
    EXPECT_FALSE(JoinOnNode(Of(0, 2), std::nullopt, directory.path(), NanosIn(absl::Seconds(2))).ok());
  };
  join();
  EXPECT_EQ(files().size(), 4u) << "process " << pid << " lives";
  process.Signal(SIGKILL);
  process.Wait();
  join();
  EXPECT_THAT(files(), testing::UnorderedElementsAre(RendezvousFile(directory.path(), alive),
                                                     directory.path() + "/notes-of-a-user"));
}

// A user starts a job again whose first try still waits for a rank. When that rank comes, the first try leaves the file
// of the second one.
TEST(JoinOnNodeTest, TheFileOfALaterTryStays) {
  TemporaryDirectory directory, of_first_try;
  const std::string path = RendezvousFile(directory.path(), Of(0, 2));
  std::thread first_try([&] {
    const auto store = JoinOnNode(Of(0, 2), std::nullopt, directory.path(), SoonNanos());
    EXPECT_TRUE(store.ok()) << store.status();
  });
  absl::StatusOr<std::string> first_file;
  while (!first_file.ok()) first_file = ReadPrivateFile(path, 1000);
  const auto second_try = HoldPrivateFile(path, "second try");
  ASSERT_TRUE(second_try.ok()) << second_try.status();
  ASSERT_TRUE(WritePrivateFile(RendezvousFile(of_first_try.path(), Of(1, 2)), *first_file).ok());
  const auto late = JoinOnNode(Of(1, 2), std::nullopt, of_first_try.path(), SoonNanos());
  EXPECT_TRUE(late.ok()) << late.status();
  first_try.join();
  EXPECT_EQ(ReadPrivateFile(path, 100).value_or("none"), "second try");
}

TEST(JoinOnNodeTest, AFileOfAnotherSizeIsAnErrorAtOnce) {
  TemporaryDirectory directory;
  const JobSecret secret = RandomJobSecret();
  auto server = TcpStoreServer::Start(StoreKey(Of(0, 3), secret)).value();
  ASSERT_TRUE(WritePrivateFile(RendezvousFile(directory.path(), Of(1, 2)),
                               absl::StrCat(server->address(), "\n", ToHex(secret), "\n"))
                  .ok());
  absl::Status status = JoinOnNode(Of(1, 2), std::nullopt, directory.path(), kNeverNanos).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has world size 2, the store server has 3"));
}

// The error comes in time even when somebody sets the system's clock back.
TEST(JoinOnNodeTest, NamesTheRankThatDoesNotCome) {
  const StoppedClock stopped;
  TemporaryDirectory directory;
  const std::int64_t end_ns = NanosIn(absl::Milliseconds(500));
  absl::Status status = JoinOnNode(Of(0, 2), std::nullopt, directory.path(), end_ns).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("joining job 'job epoch 0' of 2 ranks: missing ranks: 1 ("));
  EXPECT_EQ(OnlyFile(directory.path()), "");
  status = JoinOnNode(Of(1, 2), std::nullopt, directory.path(), end_ns).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has not found rank 0 of job 'job epoch 0'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ranks of several nodes meet at TUTTI_RENDEZVOUS=host:port)"));
}

TEST(JoinOnNodeTest, SaysThatARankIsNotLetIn) {
  TemporaryDirectory directory;
  const std::int64_t end_ns = NanosIn(absl::Seconds(1));
  std::thread rank_0([&] { EXPECT_FALSE(JoinOnNode(Of(0, 2), RandomJobSecret(), directory.path(), end_ns).ok()); });
  const absl::Status stranger = JoinOnNode(Of(1, 2), RandomJobSecret(), directory.path(), end_ns).status();
  EXPECT_EQ(stranger.code(), absl::StatusCode::kPermissionDenied) << stranger;
  EXPECT_THAT(std::string(stranger.message()),
              HasSubstr("rank 1 has not been let into job 'job epoch 0' in time: store server"));
  rank_0.join();
}

Identity OnTwoNodes(Rank rank) { return {rank, 2, 0, 1, "job", "tutti", 0}; }

// The bound on the time of an attempt that is made again, with twice the time, where the machine was too slow.
constexpr absl::Duration kLongest = absl::Minutes(1);

TEST(JoinOverNetworkTest, RanksMeetAtTheAddressOfRank0) {
  const HeldPort port;
  const JobSecret secret = RandomJobSecret();
  std::thread rank_1([&] {
    auto store = JoinOverNetwork(OnTwoNodes(1), secret, port.address, "", SoonNanos());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Get("k", Soon()).value(), "v");
    EXPECT_TRUE((*store)->Set("seen", "", Soon()).ok());
  });
  auto store = JoinOverNetwork(OnTwoNodes(0), secret, port.address, "lo", SoonNanos());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Set("k", "v", Soon()).ok());
  EXPECT_TRUE((*store)->Get("seen", Soon()).ok());
  rank_1.join();
}

// Reads what this process writes to its standard error.
class StandardErrorRead {
 public:
  StandardErrorRead() : usual_(::dup(STDERR_FILENO)) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    told_ = UniqueFd(ends[0]);
    EXPECT_GE(::dup2(ends[1], STDERR_FILENO), 0);
    ::close(ends[1]);
  }
  ~StandardErrorRead() { End(); }
  StandardErrorRead(const StandardErrorRead&) = delete;
  StandardErrorRead& operator=(const StandardErrorRead&) = delete;

  // Returns the next line, or what is written of it at End().
  std::string Line() {
    std::string line;
    for (char c = 0; c != '\n' && ::read(told_.get(), &c, 1) == 1;) line.push_back(c);
    return line;
  }

  void End() { ::dup2(usual_.get(), STDERR_FILENO); }

 private:
  const UniqueFd usual_;
  UniqueFd told_;
};

// Rank 1 comes while `earlier`, a server of an earlier program of the ranks, still serves: rank 1 is refused with
// `code` and `text` where its time ends before the server does, and meets rank 0 otherwise.
void ExpectWaitForTheEndOf(std::unique_ptr<TcpStoreServer> earlier, const JobSecret& secret, absl::StatusCode code,
                           const std::string& text) {
  const std::string address = earlier->address();
  // A server on a machine that is too slow does not answer in time.
  absl::Status status = absl::DeadlineExceededError("");
  for (absl::Duration time = absl::Milliseconds(200); absl::IsDeadlineExceeded(status) && time < kLongest; time *= 2) {
    status = JoinOverNetwork(OnTwoNodes(1), secret, address, "", NanosIn(time)).status();
  }
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  std::thread rank_1([&] {
    const auto store = JoinOverNetwork(OnTwoNodes(1), secret, address, "", SoonNanos());
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Get("k", Soon()).value(), "v");
    EXPECT_TRUE((*store)->Set("seen", "", Soon()).ok());
  });
  absl::SleepFor(absl::Milliseconds(100));
  earlier.reset();
  const auto store = JoinOverNetwork(OnTwoNodes(0), secret, address, "lo", SoonNanos());
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Set("k", "v", Soon()).ok());
  EXPECT_TRUE((*store)->Get("seen", Soon()).ok());
  rank_1.join();
}

// Ranks that run one program after another: rank 0 still serves the earlier program when rank 1's next one comes.
TEST(JoinOverNetworkTest, TheNextProgramWaitsForTheEndOfTheEarlierOne) {
  const JobSecret secret = RandomJobSecret();
  const JobKey job = StoreKey(OnTwoNodes(1), secret);
  auto earlier = TcpStoreServer::Start(job, {.one_process_per_rank = true}).value();
  OccupyRank(earlier->address(), job, 1);
  ExpectWaitForTheEndOf(std::move(earlier), secret, absl::StatusCode::kAlreadyExists,
                        "another process has joined as rank 1");
}

// A loop over jobs, each of which has an id of its own, or a size.
TEST(JoinOverNetworkTest, TheNextJobWaitsForTheEndOfTheEarlierOne) {
  const JobSecret secret = RandomJobSecret();
  const JobKey job = StoreKey(OnTwoNodes(1), secret);
  ExpectWaitForTheEndOf(TcpStoreServer::Start({secret, "lr=0.1 epoch 0", job.size}).value(), secret,
                        absl::StatusCode::kFailedPrecondition, "which serves job 'lr=0.1 epoch 0'");
  ExpectWaitForTheEndOf(TcpStoreServer::Start({secret, job.job_id, 3}).value(), secret,
                        absl::StatusCode::kFailedPrecondition, "rank 1 has world size 2, the store server has 3");
}

// The error of rank 1, which has `time` to join, and meets a server of an earlier job that soon ends.
absl::Status ErrorAfterAnEarlierJob(absl::Duration time) {
  const JobSecret secret = RandomJobSecret();
  auto earlier = TcpStoreServer::Start({secret, "lr=0.1 epoch 0", 2}).value();
  const std::string address = earlier->address();
  absl::Status status;
  std::thread rank_1([&] { status = JoinOverNetwork(OnTwoNodes(1), secret, address, "", NanosIn(time)).status(); });
  absl::SleepFor(time / 5);
  earlier.reset();
  rank_1.join();
  return status;
}

// The earlier job is gone, and rank 0 of this one does not come: rank 1 is not refused by a server that is no more.
TEST(JoinOverNetworkTest, AJobThatHasEndedIsNotTheErrorOfTheNextOne) {
  absl::Status status;
  // On a machine that is too slow rank 1 comes after the server's end, or its time ends before the server.
  for (absl::Duration time = absl::Seconds(1); time < kLongest; time *= 2) {
    status = ErrorAfterAnEarlierJob(time);
    if (absl::StrContains(status.message(), "before that")) break;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank 1 could not join in time"), HasSubstr("; before that: store server at"),
                    HasSubstr("which serves job 'lr=0.1 epoch 0'")));
}

// A rank that has waited for any server has no less patience with that of an earlier job.
TEST(JoinOverNetworkTest, ThePatienceWithAnEarlierJobBeginsWhenItIsMet) {
  const JobSecret secret = RandomJobSecret();
  const HeldPort port;
  TcpStoreServerOptions options;
  options.port = port.number;
  StandardErrorRead told;
  std::thread rank_1([&] {
    const auto store = JoinOverNetwork(OnTwoNodes(1), secret, port.address, "", NanosIn(absl::Seconds(30)));
    told.End();
    EXPECT_TRUE(store.ok()) << store.status();
  });
  absl::SleepFor(absl::Seconds(1));
  const std::int64_t met_ns = MonotonicNanos();
  auto server = TcpStoreServer::Start({secret, "lr=0.1 epoch 0", 2}, options).value();
  EXPECT_THAT(told.Line(),
              MatchesRegex("tutti: rank 1 waits up to [12].s for the end of the program that rank 0 has .*"))
      << "not longer than its time";
  EXPECT_GE(MonotonicNanos() - met_ns, 5'000'000'000);
  server.reset();
  server = TcpStoreServer::Start(StoreKey(OnTwoNodes(0), secret), options).value();
  rank_1.join();
}

TEST(JoinOverNetworkTest, ErrorsSayWhatToSet) {
  const JobSecret secret = RandomJobSecret();
  absl::Status status = JoinOverNetwork(OnTwoNodes(0), secret, "127.0.0.1:1", "nosuch0", SoonNanos()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("TUTTI_INTERFACE=nosuch0 is no network interface, address or subnet of this node"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("lo"));
  const HeldPort port;
  const std::string& here = port.address;
  const std::string elsewhere = "192.0.2.1" + here.substr(here.find(':'));
  status = JoinOverNetwork(OnTwoNodes(0), secret, elsewhere, "lo", SoonNanos()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("rank 0 would serve at ", elsewhere, ", which is ", here,
                                     " here, where other nodes cannot reach it; set TUTTI_INTERFACE")));
  if (FindNetworkInterface("::1").ok()) {
    status = JoinOverNetwork(OnTwoNodes(0), secret, elsewhere, "::1", SoonNanos()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("which is [::1]:"));
    const std::string loopback = "[::1]" + here.substr(here.find(':'));
    EXPECT_TRUE(JoinOverNetwork(OnTwoNodes(0), secret, loopback, "", SoonNanos()).ok());
  }
  auto taken = TcpStoreServer::Start({secret, "x", 1}).value();
  status = JoinOverNetwork(OnTwoNodes(0), secret, taken->address(), "", NanosIn(absl::Milliseconds(200))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("TUTTI_RENDEZVOUS"));
  for (const char* address : {"", "host", "host:", ":1", "host:0", "host:65536", "host:x"}) {
    EXPECT_EQ(JoinOverNetwork(OnTwoNodes(0), secret, address, "", SoonNanos()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

// The kernel gives outgoing connections any port that is free, also that of the rendezvous.
TEST(JoinOverNetworkTest, Rank0WaitsForItsPort) {
  const ListeningSocket listening;
  absl::StatusOr<UnsharedFd> connection = ConnectTcp(listening.address, SoonNanos());
  ASSERT_TRUE(connection.ok()) << connection.status();
  sockaddr_in own{};
  socklen_t bytes = sizeof(own);
  ASSERT_EQ(::getsockname(connection->get(), reinterpret_cast<sockaddr*>(&own), &bytes), 0);
  StandardErrorRead told;
  std::thread rank_0([&] {
    const std::string address = absl::StrCat("127.0.0.1:", ntohs(own.sin_port));
    const auto store = JoinOverNetwork(OnTwoNodes(0), RandomJobSecret(), address, "lo", SoonNanos());
    told.End();
    EXPECT_TRUE(store.ok()) << store.status();
  });
  EXPECT_THAT(
      told.Line(),
      MatchesRegex("tutti: rank 0 waits up to (1m|5.s) for its port: store server: cannot listen on 127.0.0.1.*"))
      << "not longer than its time of a minute";
  const linger reset = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(connection->get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  connection = absl::UnavailableError("the connection ends, and leaves its port");
  rank_0.join();
}

// In a new network namespace, where this node has two addresses besides that of loopback.
TEST(JoinOverNetworkTest, Rank0ListensWhereTheOthersLook) {
  constexpr const char* kMeeting = "192.0.2.1";
  constexpr const char* kInterface = "198.51.100.1";
  const JobSecret secret = RandomJobSecret();
  const bool has_run = RunInNetworkNamespace([&] {
    AddLoopbackAddress("lo:1", kMeeting);
    AddLoopbackAddress("lo:2", kInterface);
    const auto is_met_at = [&](const std::string& host, const std::string& rendezvous, const std::string& interface) {
      const auto store = JoinOverNetwork(OnTwoNodes(0), secret, rendezvous + ":29400", interface, SoonNanos());
      EXPECT_TRUE(store.ok()) << store.status();
      return TryTcpStore(host + ":29400", StoreKey(OnTwoNodes(1), secret), 1, SoonNanos()).ok();
    };
    EXPECT_TRUE(is_met_at(kMeeting, kMeeting, kInterface));
    EXPECT_TRUE(is_met_at(kMeeting, kMeeting, ""));
    EXPECT_TRUE(is_met_at(kInterface, "127.0.1.1", kInterface)) << "as Debian calls a machine";
    const auto rank_0 = JoinOverNetwork(OnTwoNodes(0), secret, "127.0.1.1:29400", kInterface, SoonNanos());
    const auto rank_1 =
        JoinOverNetwork(OnTwoNodes(1), secret, "127.0.1.1:29400", kInterface, NanosIn(absl::Seconds(10)));
    EXPECT_TRUE(rank_0.ok() && rank_1.ok()) << rank_0.status() << rank_1.status() << ": a rank of rank 0's machine";
    const absl::Status status =
        JoinOverNetwork(OnTwoNodes(0), secret, "192.0.2.1:29400", "127.0.0.1", SoonNanos()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("which is 127.0.0.1:29400 here"));
  });
  if (!has_run) GTEST_SKIP() << "making a network namespace needs root";
}

TEST(RendezvousAddressTest, IsFoundInOrder) {
  const Environment master = {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(RendezvousAddress(master, OnTwoNodes(0)).value(), "n0:29501");
  EXPECT_EQ(RendezvousAddress({{"MASTER_ADDR", "fd00::1"}, {"MASTER_PORT", "1"}}, OnTwoNodes(0)).value(),
            "[fd00::1]:2");
  Environment both = master;
  both["TUTTI_RENDEZVOUS"] = "other:1";
  EXPECT_EQ(RendezvousAddress(both, OnTwoNodes(0)).value(), "other:1");

  Identity slurm = OnTwoNodes(0);
  slurm.launcher = "slurm";
  const std::string address = RendezvousAddress({{"SLURM_STEP_NODELIST", "n[3-4]"}}, slurm).value();
  EXPECT_EQ(address.substr(0, 3), "n3:");
  EXPECT_EQ(address, RendezvousAddress({{"SLURM_STEP_NODELIST", "n[3-4]"}}, slurm).value());

  for (const Environment& environment :
       {Environment{}, Environment{{"MASTER_ADDR", "n0"}}, Environment{{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "x"}},
        Environment{{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "65535"}}}) {
    EXPECT_EQ(RendezvousAddress(environment, OnTwoNodes(0)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tutti
