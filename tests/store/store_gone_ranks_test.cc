// Ranks that die, leave, start helpers or fork: ranks that wait for them hear of their end, and of nothing else.
#include <sys/socket.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/handshake.h"
#include "store/socket.h"
#include "tests/store/child_process.h"
#include "tests/store/listening_socket.h"
#include "tests/store/temporary_directory.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// A deadline far later than any news may come; a rank that is not told fails by this deadline.
absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

// A store that a process joins by what `name` says: a server's address, or a directory.
class GoneRanksTest : public testing::TestWithParam<const char*> {
 protected:
  bool tcp() const { return std::string(GetParam()) == "Tcp"; }

  // Starts the server, if the test has one; called before any child is made.
  void StartServer() {
    if (tcp()) server_ = TcpStoreServer::Start(job_).value();
  }

  std::shared_ptr<Store> Join(Rank rank) {
    if (!tcp()) return MakeFileStore(directory_.path(), rank).value();
    return ConnectTcpStore(server_->address(), job_, rank, Soon()).value();
  }

  // The error of a Get of a key that nobody sets, when a rank is gone.
  static absl::Status AwaitEnd(Store& store) {
    return store.Get("never", Soon(), [](Rank rank) { return absl::UnavailableError(absl::StrCat("rank ", rank)); })
        .status();
  }

  const TemporaryDirectory directory_;
  const JobKey job_{RandomJobSecret(), "gone", 4};
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_P(GoneRanksTest, ARankThatIsKilledIsTold) {
  StartServer();
  ChildProcess rank_1([&](const auto& say) {
    auto store = Join(1);
    EXPECT_TRUE(store->Set("here", "", Soon()).ok());
    say("joined");
    ::pause();
  });
  ASSERT_EQ(rank_1.NextLine(), "joined");
  auto store = Join(0);
  EXPECT_TRUE(store->Look("here", Soon()).ok());
  rank_1.Signal(SIGKILL);
  EXPECT_EQ(AwaitEnd(*store), absl::UnavailableError("rank 1"));
  EXPECT_EQ(AwaitEnd(*store), absl::UnavailableError("rank 1")) << "also who waits later";
  auto late = Join(2);
  EXPECT_EQ(AwaitEnd(*late), absl::UnavailableError("rank 1")) << "also who comes later";
}

TEST_P(GoneRanksTest, NeitherAProgramNorAProcessThatARankHasStartedHidesItsDeath) {
  StartServer();
  for (const bool exec : {true, false}) {
    const Rank rank = exec ? 1 : 2;
    ChildProcess process([&](const auto& say) {
      auto store = Join(rank);
      EXPECT_TRUE(store->Set("here", "", Soon()).ok());
      pid_t helper = exec ? StartHelper() : ::fork();
      if (helper == 0) {
        ::alarm(60);
        ::pause();
      }
      say(absl::StrCat(helper));
      ::pause();
    });
    pid_t helper = 0;
    ASSERT_TRUE(absl::SimpleAtoi(process.NextLine(), &helper));
    process.Signal(SIGKILL);
    auto store = Join(0);
    bool told = false;
    absl::Status status = store
                              ->Get("never", Soon(),
                                    [&](Rank gone) {
                                      told |= gone == rank;
                                      return told ? absl::CancelledError("told") : absl::OkStatus();
                                    })
                              .status();
    EXPECT_EQ(status, absl::CancelledError("told")) << (exec ? "program" : "process");
    EXPECT_EQ(::kill(helper, SIGKILL), 0) << "the helper lived";
  }
}

TEST_P(GoneRanksTest, WhatARankHasSetBeforeItsEndIsThere) {
  StartServer();
  auto store = Join(0);
  ASSERT_TRUE(Join(1)->Set("k", "v", Soon()).ok());
  EXPECT_EQ(AwaitEnd(*store), absl::UnavailableError("rank 1")) << "who leaves is gone, too";
  EXPECT_EQ(store->Get("k", Soon(), [](Rank) { return absl::UnavailableError("gone"); }).value(), "v");
}

TEST_P(GoneRanksTest, WhoDoesNotCareGoesOnWaiting) {
  StartServer();
  auto store = Join(0);
  ASSERT_TRUE(Join(1)->Set("k", "v", Soon()).ok());
  EXPECT_EQ(AwaitEnd(*store), absl::UnavailableError("rank 1")) << "the news are there";
  std::vector<Rank> told;
  const absl::Status status = store
                                  ->Get("never", absl::Now() + absl::Milliseconds(300),
                                        [&](Rank rank) {
                                          told.push_back(rank);
                                          return absl::OkStatus();
                                        })
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(told, testing::ElementsAre(1)) << "once";
  EXPECT_EQ(store->Get("never", absl::Now() + absl::Milliseconds(5)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

// Ranks 3 and 1 of the world are ranks 0 and 1 of the part.
TEST_P(GoneRanksTest, APartOfAStoreTellsOfItsMembersOnly) {
  StartServer();
  auto part = MakePrefixStore(Join(3), "part/", {3, 1});
  for (const Rank rank : {2, 1}) ASSERT_TRUE(Join(rank)->Set("k", "v", Soon()).ok());
  EXPECT_EQ(AwaitEnd(*part), absl::UnavailableError("rank 1"));
}

TEST_P(GoneRanksTest, AForkedChildDisturbsNobody) {
  StartServer();
  auto store = Join(0);
  ASSERT_TRUE(store->Set("k", "v", Soon()).ok());
  auto* on_heap = new std::shared_ptr<Store>(store);
  ChildProcess child([&](const auto& say) {
    EXPECT_EQ((*on_heap)->Set("k", "child", Soon()).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ((*on_heap)->Get("k", Soon()).status().code(), absl::StatusCode::kFailedPrecondition);
    store.reset();
    delete on_heap;  // the last reference
    server_.reset();
    say("done");
  });
  EXPECT_EQ(child.NextLine(), "done");
  EXPECT_EQ(child.Wait(), 0);
  delete on_heap;
  EXPECT_EQ(store->Get("k", Soon()).value(), "v");
  EXPECT_TRUE(store->Set("k", "w", Soon()).ok());
  auto other = Join(1);
  std::vector<Rank> told;
  EXPECT_FALSE(other
                   ->Get("never", absl::Now() + absl::Milliseconds(300),
                         [&](Rank rank) {
                           told.push_back(rank);
                           return absl::OkStatus();
                         })
                   .ok());
  EXPECT_THAT(told, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Stores, GoneRanksTest, testing::Values("File", "Tcp"),
                         [](const auto& test) { return std::string(test.param); });

// A rank that serves is killed while a program that it has started lives on: clients are told who is gone, and the port
// is free.
TEST(TcpServerInARankTest, ItsEndIsNamedAndItsPortIsFree) {
  const JobKey job{RandomJobSecret(), "served", 2};
  ChildProcess rank_0([&](const auto& say) {
    auto server = TcpStoreServer::Start(job, {.serving_rank = 0}).value();
    auto store = ConnectTcpStore(server->address(), job, 0, Soon()).value();
    say(server->address());
    EXPECT_TRUE(store->Get("come", Soon()).ok());
    say(absl::StrCat(StartHelper()));  // must not inherit the listener or a connection
    ::pause();
  });
  const std::string address = rank_0.NextLine();
  auto store = ConnectTcpStore(address, job, 1, Soon()).value();
  ASSERT_TRUE(store->Set("come", "", Soon()).ok());
  pid_t helper = 0;
  ASSERT_TRUE(absl::SimpleAtoi(rank_0.NextLine(), &helper));
  rank_0.Signal(SIGKILL);
  const absl::Status status = store->Get("never", Soon()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 is gone, which served the store at " + address));

  rank_0.Wait();  // the connections of rank 0 end before its listener
  TcpStoreServerOptions options;
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  options.port = static_cast<std::uint16_t>(port);
  EXPECT_EQ(TcpStoreServer::Start(job, options).status(), absl::OkStatus());
  EXPECT_EQ(::kill(helper, SIGKILL), 0) << "the helper lived";
}

// The number of the closed socket is soon that of another descriptor, here of a pipe, which children are to keep.
TEST(TcpServerInARankTest, OneThatCannotListenClosesNothingInChildren) {
  const JobKey job{RandomJobSecret(), "served", 1};
  auto server = TcpStoreServer::Start(job).value();
  TcpStoreServerOptions options;
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(server->address().substr(server->address().rfind(':') + 1), &port));
  options.port = static_cast<std::uint16_t>(port);
  EXPECT_EQ(TcpStoreServer::Start(job, options).status().code(), absl::StatusCode::kAlreadyExists);
  ChildProcess child([](const auto& say) { say("heard"); });
  EXPECT_EQ(child.NextLine(), "heard");
}

// A server in a process that is stopped, and the store of rank 1 that has connected to it before.
struct StoppedServer {
  StoppedServer() { rank_0.Stop(); }

  const JobKey job{RandomJobSecret(), "stopped", 2};
  ChildProcess rank_0{[this](const auto& say) {
    auto server = TcpStoreServer::Start(job).value();
    say(server->address());
    ::pause();
  }};
  const std::shared_ptr<Store> store = ConnectTcpStore(rank_0.NextLine(), job, 1, Soon()).value();
};

// A server that is stopped answers nothing: every call ends by its deadline all the same.
TEST(TcpServerInARankTest, CallsEndByTheirDeadlineWhenItIsStopped) {
  const StoppedServer stopped;
  Store* const store = stopped.store.get();
  const absl::Time begin = absl::Now();
  const auto deadline = [] { return absl::Now() + absl::Milliseconds(20); };
  for (const absl::Status& status :
       {store->Set("the key", "v", deadline()), store->Get("the key", deadline()).status(),
        store->Look("the key", deadline()).status(), store->Add("the key", 1, deadline()).status(),
        store->Delete("the key", deadline())}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the key"));
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

// The value has more bytes than the connection holds: the sender waits for the stopped server until its deadline.
TEST(TcpServerInARankTest, SoDoesOneThatCannotSendItsValue) {
  const StoppedServer stopped;
  Store* const store = stopped.store.get();
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(store->Set("big", std::string(kMaxValueBytes, 'v'), absl::Now() + absl::Milliseconds(20)).ok());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
}

// Makes requests on a connection that is full, while a Get waits until `limit` has passed and would then be cancelled.
// Returns whether the connection was full before that.
bool IsFullWhenAGetIsGivenUp(absl::Duration limit) {
  StoppedServer stopped;
  Store* const store = stopped.store.get();
  const absl::Time given_up = absl::Now() + limit;
  std::thread waiter([&] {
    const absl::Status status = store->Get("never", given_up).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  });
  const std::string value(16 << 10, 'v');
  absl::Status status = absl::DeadlineExceededError("");
  while (absl::IsDeadlineExceeded(status) && !absl::StrContains(status.message(), "was not sent in time")) {
    status = store->Set("the key", value, absl::Now() + absl::Milliseconds(1));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  const bool is_full = absl::Now() < given_up;
  waiter.join();
  stopped.rank_0.Signal(SIGCONT);
  EXPECT_EQ(store->Get("the key", Soon()).value_or("lost"), value);
  return is_full;
}

// Nothing of the requests was sent, so the store works when the server goes on. How long the connection takes to fill
// depends on the machine.
TEST(TcpServerInARankTest, RequestsThatCannotBeSentAtAllCostNothingElse) {
  absl::Duration limit = absl::Milliseconds(500);
  while (!IsFullWhenAGetIsGivenUp(limit) && !HasFailure()) limit *= 2;
}

TEST(FileStoreTest, ADirectoryMustExistAndBeNew) {
  const TemporaryDirectory directory;
  const std::string missing = directory.path() + "/missing";
  absl::Status status = MakeFileStore(missing, 0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(missing));
  EXPECT_NE(::access(missing.c_str(), F_OK), 0) << "it was made";

  ChildProcess earlier([&](const auto&) { EXPECT_TRUE(MakeFileStore(directory.path(), 1).ok()); });
  EXPECT_EQ(earlier.Wait(), 0);
  EXPECT_TRUE(MakeFileStore(directory.path(), 0).ok());
  status = MakeFileStore(directory.path(), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another process has joined as rank 1"));
}

// Ranks that wait now are told that the rank is gone, and so are ranks that come later. A rank that has joined is there
// until its connections end.
TEST(TcpStoreTest, ARankThatHasEndedWithoutHavingJoinedIsGone) {
  const JobKey job{RandomJobSecret(), "ended", 4};
  const auto server = TcpStoreServer::Start(job).value();
  const auto connect = [&](Rank rank) { return ConnectTcpStore(server->address(), job, rank, Soon()).value(); };
  const auto rank_0 = connect(0), rank_1 = connect(1);
  ASSERT_TRUE(rank_1->Set("here", "", Soon()).ok());
  server->RankHasEnded(1);
  server->RankHasEnded(2);
  for (const auto& store : {rank_0, connect(3)}) {
    const auto on_gone = [](Rank rank) { return absl::UnavailableError(absl::StrCat("rank ", rank)); };
    EXPECT_EQ(store->Get("never", Soon(), on_gone).status(), absl::UnavailableError("rank 2"));
  }
}

// The test is the server, which hears from the client before the fork, and refuses the client after it.
TEST(TcpStoreTest, AChildThatIsForkedDuringTheHandshakeDoesNotKeepTheConnection) {
  const ListeningSocket listener;
  std::thread client([&] {
    const absl::Status status = ConnectTcpStore(listener.address, {{}, "job", 1}, 0, Soon()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  });
  const UniqueFd connection(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const std::int64_t end_ns = NanosAt(Soon());
  EXPECT_TRUE(ReceiveExactly(connection.get(), kClientHelloBytes, end_ns).ok());
  ChildProcess child([](const auto&) { ::pause(); });
  EXPECT_TRUE(SendAll(connection.get(), std::string(kServerHelloBytes + kProofBytes, 'x'), end_ns).ok());
  client.join();
  const absl::Status closed = ReceiveSome(connection.get(), 1, end_ns).status();
  EXPECT_EQ(closed.code(), absl::StatusCode::kUnavailable) << closed << ": the child has the connection, too";
}

// Rank 0's second program comes while rank 1 still runs the first one.
TEST(TcpStoreTest, RanksThatRunOneProgramAfterAnotherMeetInEach) {
  const JobKey job{RandomJobSecret(), "programs", 2};
  const auto server = TcpStoreServer::Start(job, {.one_table_per_program = true}).value();
  const auto connect = [&](Rank rank) { return ConnectTcpStore(server->address(), job, rank, Soon()).value(); };
  const auto on_gone = [](Rank rank) { return absl::UnavailableError(absl::StrCat("rank ", rank)); };
  ChildProcess first_of_0([&](const auto&) { EXPECT_TRUE(connect(0)->Set("k", "first", Soon()).ok()); });
  EXPECT_EQ(first_of_0.Wait(), 0);
  ChildProcess first_of_1([&](const auto& say) {
    const auto store = connect(1);
    EXPECT_EQ(store->Get("never", Soon(), on_gone).status(), absl::UnavailableError("rank 0"));
    say(store->Get("k", Soon()).value());
    ::pause();
  });
  ASSERT_EQ(first_of_1.NextLine(), "first");

  const auto second_of_0 = connect(0);
  EXPECT_EQ(second_of_0->Look("k", Soon()).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(second_of_0->Set("k", "second", Soon()).ok());
  EXPECT_TRUE(connect(0)->Look("k", Soon()).ok()) << "the same process may come again";
  first_of_1.Signal(SIGKILL);
  first_of_1.Wait();
  EXPECT_EQ(second_of_0->Get("never", absl::Now() + absl::Milliseconds(300), on_gone).status().code(),
            absl::StatusCode::kDeadlineExceeded)
      << "rank 1 has ended one program, and may come with the next";
  ChildProcess second_of_1([&](const auto& say) {
    say(connect(1)->Get("k", Soon()).value());
    ::pause();
  });
  EXPECT_EQ(second_of_1.NextLine(), "second");
  second_of_1.Signal(SIGKILL);
  EXPECT_EQ(second_of_0->Get("never", Soon(), on_gone).status(), absl::UnavailableError("rank 1"));

  server->RankHasEnded(1);
  ChildProcess third_of_0([&](const auto& say) { say(connect(0)->Get("never", Soon(), on_gone).status().ToString()); });
  EXPECT_EQ(third_of_0.NextLine(), "UNAVAILABLE: rank 1");
}

}  // namespace
}  // namespace tutti
