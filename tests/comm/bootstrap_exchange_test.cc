#include "comm/bootstrap_exchange.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }
std::int64_t SoonNanos() { return NanosIn(absl::Seconds(60)); }

template <typename Function>
void OnRanks(int size, const Function& function) {
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank) ranks.emplace_back([&, rank] { function(rank); });
  for (std::thread& rank : ranks) rank.join();
}

TEST(ExchangeBlobsTest, EveryRankGetsAllInRankOrder) {
  for (int size : {1, 2, 3, 8}) {
    auto store = MakeMemoryStore();
    OnRanks(size, [&](Rank rank) {
      auto blobs = ExchangeBlobs(*store, "x", rank, size, absl::StrCat("of ", rank), Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      ASSERT_EQ(blobs->size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) EXPECT_EQ((*blobs)[static_cast<std::size_t>(r)], absl::StrCat("of ", r));
    });
  }
}

TEST(ExchangeBlobsTest, LeavesNothingBehindAndTheNameCanBeUsedAgain) {
  auto store = MakeMemoryStore();
  for (int round = 0; round < 3; ++round) {
    OnRanks(3, [&](Rank rank) {
      auto blobs = ExchangeBlobs(*store, "x", rank, 3, absl::StrCat(round), Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      EXPECT_THAT(*blobs, testing::Each(absl::StrCat(round)));
    });
    EXPECT_FALSE(store->Look("exchange/in/x/0", Soon()).ok());
    EXPECT_FALSE(store->Look("exchange/read/x/0", Soon()).ok());
    EXPECT_FALSE(store->Look("exchange/out/x/0", Soon()).ok());
  }
}

TEST(ExchangeBlobsTest, ABlobThatIsTooLongIsNamedWithItsRank) {
  auto store = MakeMemoryStore();
  const std::string longest(kMaxValueBytes - 1, 'x');
  const auto blobs = ExchangeBlobs(*store, "x", 0, 1, longest, Soon());
  ASSERT_TRUE(blobs.ok()) << blobs.status();
  EXPECT_EQ((*blobs)[0], longest);
  EXPECT_EQ(ExchangeBlobs(*store, "x", 0, 1, longest + "x", Soon()).status(),
            absl::InvalidArgumentError("exchange 'x': the blob of rank 0 has 16777216 bytes; at most 16777215 are "
                                       "allowed"));
}

// All blobs together are longer than a value of a store may be, and their lengths lie across its ends.
TEST(ExchangeBlobsTest, ManyLongBlobsArriveWhole) {
  auto store = MakeMemoryStore();
  const std::vector<std::size_t> lengths = {kMaxValueBytes - 7, 1, kMaxValueBytes - 1, 0, 5'000'000};
  const auto blob_of = [&](std::size_t rank) { return std::string(lengths[rank], static_cast<char>('a' + rank)); };
  OnRanks(static_cast<int>(lengths.size()), [&](Rank rank) {
    auto blobs = ExchangeBlobs(*store, "x", rank, static_cast<int>(lengths.size()),
                               blob_of(static_cast<std::size_t>(rank)), Soon());
    ASSERT_TRUE(blobs.ok()) << blobs.status();
    ASSERT_EQ(blobs->size(), lengths.size());
    for (std::size_t r = 0; r < lengths.size(); ++r) EXPECT_TRUE((*blobs)[r] == blob_of(r)) << "of rank " << r;
  });
  for (int part = 0; part < 4; ++part) {
    EXPECT_FALSE(store->Look(absl::StrCat("exchange/out/x/", part), Soon()).ok());
  }
}

// A store that counts the calls of its users.
class CountingStore final : public Store {
 public:
  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    ++calls_;
    return store_->Set(key, value, deadline);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    ++calls_;
    return store_->Get(key, deadline, on_gone);
  }
  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    ++calls_;
    return store_->Look(key, deadline);
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    ++calls_;
    return store_->Add(key, delta, deadline);
  }
  absl::Status Delete(absl::string_view key, absl::Time deadline) override {
    ++calls_;
    return store_->Delete(key, deadline);
  }
  int calls() const { return calls_; }

 private:
  const std::shared_ptr<Store> store_ = MakeMemoryStore();
  std::atomic<int> calls_ = 0;
};

// A thousand ranks that each asked for the values of all others would keep the server busy for minutes.
TEST(ExchangeBlobsTest, TheCallsOfAStoreGrowWithTheRanksAndNotWithTheirSquare) {
  for (const int size : {4, 64}) {
    CountingStore store;
    OnRanks(size, [&](Rank rank) {
      auto blobs = ExchangeBlobs(store, "x", rank, size, absl::StrCat(rank), Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      EXPECT_EQ(blobs->back(), absl::StrCat(size - 1));
    });
    EXPECT_LE(store.calls(), 7 * size + 2) << size << " ranks";
  }
}

// Names are the user's.
TEST(ExchangeBlobsTest, NamesThatLookLikeKeysOfAnotherExchangeAreNone) {
  auto store = MakeMemoryStore();
  const std::vector<std::string> names = {"x", "x/out", "x/read", "x/in"};
  for (int round = 0; round < 20; ++round) {
    OnRanks(8, [&](Rank thread) {
      const std::string& name = names[static_cast<std::size_t>(thread / 2)];
      auto blobs = ExchangeBlobs(*store, name, thread % 2, 2, absl::StrCat(name, round), Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      EXPECT_THAT(*blobs, testing::Each(absl::StrCat(name, round)));
    });
  }
}

TEST(ExchangeBlobsTest, NamesRank0WhereItHandsNothingOut) {
  auto store = MakeMemoryStore();
  for (const Rank rank : {0, 2}) ASSERT_TRUE(Contribute(*store, "exchange/in/x/", rank, "", SoonNanos()).ok());
  const absl::Status status = ExchangeBlobs(*store, "x", 1, 3, "", absl::Now() + absl::Milliseconds(300)).status();
  EXPECT_EQ(status, absl::DeadlineExceededError("exchange 'x' of 3 ranks: missing ranks: 0"));
}

TEST(ExchangeBlobsTest, NamesTheRanksThatAreMissing) {
  auto store = MakeMemoryStore();
  ASSERT_TRUE(Contribute(*store, "exchange/in/x/", 2, "", SoonNanos()).ok());
  absl::Status status = ExchangeBlobs(*store, "x", 0, 4, "", absl::Now() + absl::Milliseconds(500)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing ranks: 1, 3"));
}

TEST(ExchangeBlobsTest, WhoComesLaterHearsThatTheOthersHaveGivenUp) {
  auto store = MakeMemoryStore();
  OnRanks(2, [&](Rank rank) {
    EXPECT_THAT(ExchangeBlobs(*store, "x", rank, 3, "early", absl::Now() + absl::Milliseconds(300)).status().ToString(),
                HasSubstr("missing ranks: 2"));
  });
  const absl::StatusOr<std::vector<std::string>> late = ExchangeBlobs(*store, "x", 2, 3, "late", Soon());
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  EXPECT_THAT(
      std::string(late.status().message()),
      HasSubstr("missing ranks: 2; rank 2 is this one, which was too late for another rank, whose deadline had"));
}

// One rank has come of a world that no machine can hold: the error about the missing ranks is bounded in time and
// length.
TEST(ExchangeBlobsTest, NamesSomeOfTheRanksThatAHugeWorldMisses) {
  constexpr int kRanks = 99'999'999;
  // The server is one for fewer ranks: it asks for a descriptor for each.
  auto server = TcpStoreServer::Start({JobSecret{}, "huge", 1}).value();
  auto store = ConnectTcpStore(server->address(), {JobSecret{}, "huge", 1}, 0, Soon()).value();
  ASSERT_TRUE(Contribute(*store, "exchange/in/x/", 2, "", SoonNanos()).ok());
  const absl::Time begin = absl::Now();
  absl::Status status = ExchangeBlobs(*store, "x", 0, kRanks, "", absl::Now() + absl::Milliseconds(500)).status();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing ranks: 1, 3, 4, 5, 6, 7, 8, 9, and "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("to 99999998"));
  EXPECT_LT(status.message().size(), 300u);
}

// The ranks of a job. Each rank has a store of its own, whose end the stores of the others see.
class ExchangeOfRanks : public testing::Test {
 protected:
  std::shared_ptr<Store> Join(Rank rank) { return ConnectTcpStore(server_->address(), job_, rank, Soon()).value(); }

  const JobKey job_{RandomJobSecret(), "job", 3};
  const std::unique_ptr<TcpStoreServer> server_ = TcpStoreServer::Start(job_).value();
};

// The gone rank takes part in the first exchange, as in a set-up of several stages, and in no other.
TEST_F(ExchangeOfRanks, ARankThatIsGoneBetweenTwoExchangesIsNamedToAllOthers) {
  OnRanks(3, [&](Rank rank) {
    auto store = Join(rank);
    ASSERT_TRUE(ExchangeBlobs(*store, "first", rank, 3, "", Soon()).ok());
    if (rank == 1) return;
    absl::Status status = ExchangeBlobs(*store, "second", rank, 3, "", absl::InfiniteFuture()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("exchange 'second' of 3 ranks: rank 1 is gone"));
  });
}

// Rank 0 has contributed, and ends before it hands out what all ranks have contributed.
TEST_F(ExchangeOfRanks, ARank0ThatIsGoneBeforeItHandsOutIsNamed) {
  auto rank_0 = Join(0);
  for (const Rank rank : {0, 2}) ASSERT_TRUE(Contribute(*rank_0, "exchange/in/x/", rank, "", SoonNanos()).ok());
  rank_0.reset();
  const absl::Status status = ExchangeBlobs(*Join(1), "x", 1, 3, "", absl::InfiniteFuture()).status();
  EXPECT_EQ(status, absl::UnavailableError("exchange 'x' of 3 ranks: rank 0 is gone, it has died or left"));
}

// Rank 1 of the world is member 0 of the group.
TEST_F(ExchangeOfRanks, AMemberThatIsGoneIsNamedByItsRank) {
  ASSERT_TRUE(Join(1)->Set("joined", "", Soon()).ok());
  const std::shared_ptr<Store> store = MakePrefixStore(Join(2), "group/", {1, 2});
  const MeetingMembers members = {.ranks = {1, 2}, .limit = absl::InfiniteDuration()};
  const absl::Status status = ExchangeInGroup(*store, "Group 'x' of ranks 1, 2", 1, members, "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Group 'x' of ranks 1, 2: rank 1 is gone, it has died or left"));
}

TEST_F(ExchangeOfRanks, ARankThatLeavesWithoutHavingReadIsNamedToRank0) {
  auto store = Join(0);
  ASSERT_TRUE(Contribute(*Join(1), "exchange/in/x/", 1, "one", SoonNanos()).ok());
  OnRanks(2, [&](Rank thread) {
    if (thread == 0) {
      absl::Status status = ExchangeBlobs(*store, "x", 0, 3, "zero", absl::InfiniteFuture()).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("not every rank has read it: rank 1 is gone"));
    } else {
      auto blobs = ExchangeBlobs(*Join(2), "x", 2, 3, "two", Soon());
      ASSERT_TRUE(blobs.ok()) << blobs.status();
      EXPECT_THAT(*blobs, testing::ElementsAre("zero", "one", "two")) << "what rank 1 gave is worth as much as before";
    }
  });
}

// Rank 1 has done its part and leaves; rank 2 is late.
TEST_F(ExchangeOfRanks, ARankThatLeavesInOrderIsNoDeath) {
  auto store = Join(0);
  auto of_rank_1 = Join(1);
  for (const char* prefix : {"exchange/in/x/", "exchange/read/x/"}) {
    ASSERT_TRUE(Contribute(*of_rank_1, prefix, 1, "", SoonNanos()).ok());
  }
  std::thread rank_2;
  const auto leave_and_go_on = [&](Rank gone) {
    EXPECT_EQ(gone, 1);
    rank_2 = std::thread([&] { EXPECT_TRUE(ExchangeBlobs(*Join(2), "x", 2, 3, "", Soon()).ok()); });
    return absl::OkStatus();
  };
  of_rank_1.reset();
  EXPECT_TRUE(store->Get("exchange/in/x/2", Soon(), leave_and_go_on).ok());
  EXPECT_TRUE(ExchangeBlobs(*store, "x", 0, 3, "", Soon()).ok());
  rank_2.join();
}

// The exchange calls ranks late at once here, and the late ranks come as soon as they are called late.
TEST(GetFromAllTest, TellsOnceWhoIsLateAndGoesOnWaiting) {
  auto store = MakeMemoryStore();
  const auto come = [&](Rank rank) {
    ASSERT_TRUE(Contribute(*store, "x/", rank, absl::StrCat("of ", rank), SoonNanos()).ok());
  };
  for (const Rank rank : {0, 2}) come(rank);
  int reports = 0;
  const LateRanksReport late = {.patience = absl::ZeroDuration(), .report = [&](absl::string_view ranks) {
                                  ++reports;
                                  EXPECT_EQ(ranks, "1, 3");
                                  for (const Rank rank : {1, 3}) come(rank);
                                }};
  auto values = GetFromAll(*store, "x/", 0, 4, SoonNanos(), late);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, testing::ElementsAre("of 0", "of 1", "of 2", "of 3"));
  EXPECT_EQ(reports, 1);
  EXPECT_TRUE(GetFromAll(*store, "x/", 0, 4, SoonNanos(), late).ok());
  EXPECT_EQ(reports, 1) << "nobody was late";
}

TEST(GetFromAllTest, ARankThatOthersHaveGivenUpIsMissing) {
  auto store = MakeMemoryStore();
  ASSERT_TRUE(store->Set("exchange/in/x/2", "!2", Soon()).ok());
  absl::Status status = ExchangeBlobs(*store, "x", 0, 4, "", absl::Now() + absl::Milliseconds(500)).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing ranks: 1, 2, 3"));
}

// Rank 2 gives up just before rank 0 does: rank 2 has come, and rank 1 alone is missing.
TEST(GetFromAllTest, ARankThatHasGivenUpIsNotMissing) {
  auto store = MakeMemoryStore();
  ASSERT_TRUE(Contribute(*store, "x/", 0, "", SoonNanos()).ok());
  const LateRanksReport give_up_first = {
      .patience = absl::ZeroDuration(), .report = [&](absl::string_view) {
        ASSERT_TRUE(Contribute(*store, "x/", 2, "", SoonNanos()).ok());
        const absl::Status of_rank_2 = GetFromAll(*store, "x/", 2, 3, MonotonicNanos(), {}).status();
        EXPECT_EQ(of_rank_2, absl::DeadlineExceededError("missing ranks: 1"));
        ASSERT_TRUE(store->Delete("x/1", Soon()).ok()) << "the note for rank 1, so that rank 0 looks for itself";
      }};
  const std::int64_t end_ns = NanosIn(absl::Milliseconds(300));
  EXPECT_EQ(GetFromAll(*store, "x/", 0, 3, end_ns, give_up_first).status(),
            absl::DeadlineExceededError("missing ranks: 1"));
}

// A store whose server was stopped: nothing is answered, and every call lasts until its deadline.
class SilentStore final : public Store {
 public:
  absl::Status Set(absl::string_view, absl::string_view, absl::Time deadline) override { return Wait(deadline); }
  absl::StatusOr<std::string> Get(absl::string_view, absl::Time deadline, OnGone) override { return Wait(deadline); }
  absl::StatusOr<std::string> Look(absl::string_view, absl::Time deadline) override { return Wait(deadline); }
  absl::StatusOr<std::int64_t> Add(absl::string_view, std::int64_t, absl::Time deadline) override {
    return Wait(deadline);
  }
  absl::Status Delete(absl::string_view, absl::Time deadline) override { return Wait(deadline); }

  absl::Time latest() const { return latest_; }

 private:
  absl::Status Wait(absl::Time deadline) {
    latest_ = std::max(latest_, deadline);
    absl::SleepFor(deadline - absl::Now());
    return absl::DeadlineExceededError("no answer in time");
  }

  absl::Time latest_ = absl::InfinitePast();
};

// The store of a rank that asks a test before it waits: what is not OK, such as the interruption by a signal, ends the
// wait.
class WatchedStore final : public Store {
 public:
  using BeforeWait = std::function<absl::Status(absl::string_view key)>;

  WatchedStore(Store& base, BeforeWait before_wait) : base_(base), before_wait_(std::move(before_wait)) {}
  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    return base_.Set(key, value, deadline);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    if (absl::Status status = before_wait_(key); !status.ok()) return status;
    return base_.Get(key, deadline, std::move(on_gone));
  }
  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    return base_.Look(key, deadline);
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    return base_.Add(key, delta, deadline);
  }
  absl::Status Delete(absl::string_view key, absl::Time deadline) override { return base_.Delete(key, deadline); }

 private:
  Store& base_;
  const BeforeWait before_wait_;
};

absl::Status Interrupted() { return absl::CancelledError("interrupted by a signal"); }

TEST(ExchangeInGroupTest, AMemberThatIsInterruptedTellsTheOthers) {
  for (const Rank interrupted : {0, 1}) {
    auto store = MakeMemoryStore();
    const MeetingMembers members = {.ranks = {7, 4, 9}, .limit = absl::InfiniteDuration()};
    WatchedStore interrupts(*store, [](absl::string_view) { return Interrupted(); });
    const absl::Status own = ExchangeInGroup(interrupts, "Group 'x'", interrupted, members, "").status();
    EXPECT_EQ(own, absl::CancelledError("Group 'x': interrupted by a signal"));
    OnRanks(2, [&](Rank thread) {
      const Rank place = thread < interrupted ? thread : thread + 1;
      const absl::Status told = ExchangeInGroup(*store, "Group 'x'", place, members, "").status();
      EXPECT_EQ(told, absl::UnavailableError(absl::StrCat("Group 'x': rank ", members.ranks[interrupted],
                                                          " has given up: interrupted by a signal")));
    });
  }
}

// Member 1 is interrupted while member 0, which has taken what member 1 contributed, waits for member 2.
TEST(ExchangeInGroupTest, AMemberThatIsInterruptedWhileAnotherIsLateTellsBoth) {
  auto store = MakeMemoryStore();
  const MeetingMembers members = {.ranks = {7, 4, 9}, .limit = absl::InfiniteDuration()};
  std::latch member_2_is_awaited(1);
  WatchedStore of_member_0(*store, [&](absl::string_view key) {
    if (key == "exchange/in/seat/2") member_2_is_awaited.count_down();
    return absl::OkStatus();
  });
  WatchedStore of_member_1(*store, [&](absl::string_view) {
    member_2_is_awaited.wait();
    return Interrupted();
  });
  const absl::Status told = absl::UnavailableError("Group 'x': rank 4 has given up: interrupted by a signal");
  OnRanks(2, [&](Rank thread) {
    if (thread == 0) {
      EXPECT_EQ(ExchangeInGroup(of_member_0, "Group 'x'", 0, members, "").status(), told);
    } else {
      EXPECT_TRUE(absl::IsCancelled(ExchangeInGroup(of_member_1, "Group 'x'", 1, members, "").status()));
      EXPECT_EQ(ExchangeInGroup(*store, "Group 'x'", 2, members, "").status(), told);
    }
  });
}

// Member 0 has handed out what all have contributed, and waits for member 1 to read it.
TEST(ExchangeInGroupTest, AMemberThatIsInterruptedBeforeItReadsTellsMember0) {
  auto store = MakeMemoryStore();
  const MeetingMembers members = {.ranks = {7, 4}, .limit = absl::InfiniteDuration()};
  std::latch read_is_awaited(1);
  WatchedStore of_member_0(*store, [&](absl::string_view key) {
    if (key == "exchange/read/seat/1") read_is_awaited.count_down();
    return absl::OkStatus();
  });
  WatchedStore of_member_1(*store, [&](absl::string_view) {
    read_is_awaited.wait();
    return Interrupted();
  });
  OnRanks(2, [&](Rank thread) {
    const absl::Status status =
        ExchangeInGroup(thread == 0 ? of_member_0 : of_member_1, "Group 'x'", thread, members, "").status();
    EXPECT_EQ(status, thread == 1 ? absl::CancelledError("Group 'x': interrupted by a signal")
                                  : absl::UnavailableError("Group 'x': not every rank has read it: rank 4 has given "
                                                           "up: interrupted by a signal"));
  });
}

// Member 0 is interrupted while it waits for the others to read what it has handed out.
TEST(ExchangeInGroupTest, AMember0ThatIsInterruptedTellsThoseThatHaveNotRead) {
  auto store = MakeMemoryStore();
  const MeetingMembers members = {.ranks = {7, 4}, .limit = absl::InfiniteDuration()};
  std::latch is_interrupted(1);
  WatchedStore of_member_0(
      *store, [&](absl::string_view key) { return key == "exchange/read/seat/1" ? Interrupted() : absl::OkStatus(); });
  WatchedStore of_member_1(*store, [&](absl::string_view) {
    is_interrupted.wait();
    return absl::OkStatus();
  });
  OnRanks(2, [&](Rank thread) {
    if (thread == 0) {
      EXPECT_TRUE(absl::IsCancelled(ExchangeInGroup(of_member_0, "Group 'x'", 0, members, "").status()));
      is_interrupted.count_down();
    } else {
      EXPECT_EQ(ExchangeInGroup(of_member_1, "Group 'x'", 1, members, "").status(),
                absl::UnavailableError("Group 'x': rank 7 has given up: interrupted by a signal"));
    }
  });
}

// The store ends with rank 0, as it does where rank 0's process serves it.
TEST(StayAwayTest, AllHearTheCauseBeforeRank0EndsTheStore) {
  for (int round = 0; round < 20; ++round) {
    const JobKey job = {.secret = RandomJobSecret(), .job_id = "job", .size = 4};
    auto server = TcpStoreServer::Start(job);
    ASSERT_TRUE(server.ok()) << server.status();
    const std::string address = (*server)->address();
    OnRanks(4, [&](Rank rank) {
      const auto store = ConnectTcpStore(address, job, rank, Soon());
      ASSERT_TRUE(store.ok()) << store.status();
      if (rank == 2) {
        EXPECT_TRUE(absl::IsNotFound(StayAway(**store, "x", rank, 4, absl::NotFoundError("no such schedule"))));
        return;
      }
      EXPECT_THAT(std::string(ExchangeBlobs(**store, "x", rank, 4, "", Soon()).status().message()),
                  testing::HasSubstr("rank 2 has given up: no such schedule"));
      if (rank == 0) server->reset();
    });
  }
}

TEST(GetFromAllTest, ASilentStoreIsNotAskedBeyondTheDeadline) {
  SilentStore store;
  const absl::Time deadline = absl::Now() + absl::Seconds(1);
  absl::Status status = GetFromAll(store, "x/", 0, 3, NanosAt(deadline), {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(status.message(), "missing ranks: not known, because the store does not answer");
  EXPECT_LT(store.latest(), deadline + absl::Milliseconds(10)) << "clocks are read one after the other";
}

// Rank 1 never comes. Rank 0, whose own wait has no deadline, hears so from rank 2, whose wait has one.
TEST(GetFromAllTest, WhoGivesUpTellsAllThatWaitForTheSameRanks) {
  auto store = MakeMemoryStore();
  OnRanks(2, [&](Rank thread) {
    const Rank rank = 2 * thread;
    const absl::Time deadline = rank == 0 ? absl::InfiniteFuture() : absl::Now() + absl::Milliseconds(500);
    absl::Status status = ExchangeBlobs(*store, "x", rank, 3, "", deadline).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    if (rank == 0) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("missing ranks: 1"));
    }
  });
}

TEST(GetFromAllTest, TheLineNamesWhereAndWho) {
  testing::internal::CaptureStderr();
  LateRanksOnStderr("exchange 'x' of 4 ranks", kNeverNanos).report("1, 3");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti: exchange 'x' of 4 ranks: missing ranks: 1, 3; waiting for up to inf more\n");
}

TEST(ExchangeInGroupTest, CallsTheMembersByTheirRanks) {
  auto store = MakeMemoryStore();
  const MeetingMembers members = {.ranks = {7, 4, 9}, .limit = absl::Milliseconds(300)};
  const absl::Status one = ExchangeInGroup(*store, "Group 'x' of ranks 7, 4, 9", 1, members, "").status();
  EXPECT_THAT(std::string(one.message()), HasSubstr("Group 'x' of ranks 7, 4, 9: ranks 7, 9 have not come within"));
  EXPECT_THAT(std::string(one.message()), HasSubstr("300ms; every member must call Group with the same members"));
}

TEST(ExchangeInGroupTest, TheLineCallsTheMembersByTheirRanks) {
  auto store = MakeMemoryStore();
  testing::internal::CaptureStderr();
  const MeetingMembers members = {.ranks = {2, 0}, .limit = absl::Milliseconds(5400)};
  const absl::Status status = ExchangeInGroup(*store, "Group 'pair' of ranks 2, 0", 0, members, "").status();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("tutti: Group 'pair' of ranks 2, 0 waits for rank 0, for up to "));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ExchangeBlobsTest, RefusesARankOutsideTheWorld) {
  auto store = MakeMemoryStore();
  for (auto [rank, size] : {std::pair{2, 2}, {-1, 2}, {0, 0}}) {
    EXPECT_EQ(ExchangeBlobs(*store, "x", rank, size, "", Soon()).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(CheckAgreementTest, AgreesOnAnyBytes) {
  auto store = MakeMemoryStore();
  OnRanks(3, [&](Rank rank) {
    EXPECT_TRUE(CheckAgreement(*store, "a", rank, 3, {{"bucket", "1"}, {"", std::string("\0:9", 3)}}, Soon()).ok());
    EXPECT_TRUE(CheckAgreement(*store, "b", rank, 3, {}, Soon()).ok());
  });
}

TEST(CheckAgreementTest, EveryRankLearnsWhichRankAndFieldDiffer) {
  auto store = MakeMemoryStore();
  OnRanks(4, [&](Rank rank) {
    const std::string bytes = rank == 2 ? "1048576" : "26214400";
    absl::Status status =
        CheckAgreement(*store, "a", rank, 4, {{"algorithm", "bytegrad"}, {"bucket_bytes", bytes}}, Soon());
    EXPECT_EQ(status, absl::InvalidArgumentError("rank 2 has bucket_bytes=1048576, rank 0 has 26214400"));
  });
}

TEST(CheckAgreementTest, NamesFieldsThatOnlySomeHave) {
  auto store = MakeMemoryStore();
  OnRanks(2, [&](Rank rank) {
    absl::Status status = CheckAgreement(*store, "a", rank, 2, {{rank == 0 ? "old" : "new", "1"}}, Soon());
    EXPECT_EQ(status,
              absl::InvalidArgumentError("rank 1 has no old, rank 0 has 1; rank 1 has new=1, rank 0 has no new"));
  });
}

// The first of two fields of one name is no answer for the second.
TEST(CheckAgreementTest, ComparesFieldsOfOneNameInTheirOrder) {
  auto store = MakeMemoryStore();
  OnRanks(2, [&](Rank rank) {
    EXPECT_EQ(CheckAgreement(*store, "a", rank, 2, {{"a", "1"}, {"a", "2"}}, Soon()), absl::OkStatus());
    EXPECT_EQ(CheckAgreement(*store, "b", rank, 2, {{"a", "1"}, {"a", rank == 0 ? "1" : "2"}}, Soon()),
              absl::InvalidArgumentError("rank 1 has a (2)=2, rank 0 has 1"));
    EXPECT_EQ(CheckAgreement(*store, "c", rank, 2, {{"a", "1"}, {rank == 0 ? "a" : "b", "1"}}, Soon()),
              absl::InvalidArgumentError("rank 1 has no a (2), rank 0 has 1; rank 1 has b=1, rank 0 has no b"));
  });
}

}  // namespace
}  // namespace tutti
