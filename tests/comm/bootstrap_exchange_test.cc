#include "comm/bootstrap_exchange.h"

#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

using testing::HasSubstr;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

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
    EXPECT_FALSE(store->Get("exchange/x/0", absl::InfinitePast()).ok());
    EXPECT_FALSE(store->Get("exchange/x/readers", absl::InfinitePast()).ok());
  }
}

TEST(ExchangeBlobsTest, NamesTheRanksThatAreMissing) {
  auto store = MakeMemoryStore();
  ASSERT_TRUE(store->Set("exchange/x/2", "").ok());
  absl::Status status = ExchangeBlobs(*store, "x", 0, 4, "", absl::Now() + absl::Milliseconds(5)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing ranks: 1, 3"));
}

// Patience ends at once here, and the late ranks come as soon as they are called late.
TEST(GetFromAllTest, TellsOnceWhoIsLateAndGoesOnWaiting) {
  auto store = MakeMemoryStore();
  for (const char* key : {"x/0", "x/2"}) ASSERT_TRUE(store->Set(key, key).ok());
  int reports = 0;
  const LateRanksReport late = {.patience = absl::ZeroDuration(), .report = [&](absl::string_view ranks) {
                                  ++reports;
                                  EXPECT_EQ(ranks, "1, 3");
                                  for (const char* key : {"x/1", "x/3"}) ASSERT_TRUE(store->Set(key, key).ok());
                                }};
  auto values = GetFromAll(*store, "x/", 4, Soon(), late);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, testing::ElementsAre("x/0", "x/1", "x/2", "x/3"));
  EXPECT_EQ(reports, 1);
  EXPECT_TRUE(GetFromAll(*store, "x/", 4, Soon(), late).ok());
  EXPECT_EQ(reports, 1) << "nobody was late";
}

TEST(GetFromAllTest, TheLineNamesWhereAndWho) {
  testing::internal::CaptureStderr();
  LateRanksOnStderr("exchange 'x' of 4 ranks", absl::InfiniteFuture()).report("1, 3");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti: exchange 'x' of 4 ranks: missing ranks: 1, 3; waiting for up to inf more\n");
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

}  // namespace
}  // namespace tutti
