#include "tests/store/store_conformance.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/harness/stopped_clock.h"
#include "tests/store/child_process.h"
#include "tests/store/store_fixtures.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The longest key that leaves room for the prefix of a prefix store.
constexpr std::size_t kLongKey = kMaxKeyBytes - 16;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

TEST_P(StoreConformance, AnotherRankReadsWhatOneWrote) {
  auto a = fixture_->Join(0);
  auto b = fixture_->Join(1);
  const std::string value("\0any\nbytes\xff", 11);
  ASSERT_TRUE(a->Set("address/0", value, Soon()).ok());
  EXPECT_EQ(b->Get("address/0", Soon()).value(), value);
  ASSERT_TRUE(b->Set("address/0", "", Soon()).ok());
  EXPECT_EQ(a->Get("address/0", absl::InfiniteFuture()).value(), "");
}

TEST_P(StoreConformance, GetWaitsForAnotherRank) {
  auto a = fixture_->Join(0);
  auto b = fixture_->Join(1);
  std::thread writer([&] { EXPECT_TRUE(b->Set("late", "x", Soon()).ok()); });
  EXPECT_EQ(a->Get("late", Soon()).value(), "x");
  writer.join();
}

TEST_P(StoreConformance, AForkedChildIsRefused) {
  auto store = fixture_->Join(0);
  ASSERT_TRUE(store->Set("key", "1", Soon()).ok());
  ChildProcess child([&](const ChildProcess::Say& say) {
    for (const absl::Status& refused :
         {store->Set("key", "2", Soon()), store->Get("key", Soon()).status(), store->Look("key", Soon()).status(),
          store->Add("key", 1, Soon()).status(), store->Delete("key", Soon())}) {
      say(refused.ToString());
    }
  });
  for (int call = 0; call < 5; ++call) {
    EXPECT_THAT(child.NextLine(), AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("forked child")));
  }
  EXPECT_EQ(store->Look("key", Soon()).value(), "1");
}

// A rank whose thread waits must not keep its other threads from writing.
TEST_P(StoreConformance, OneThreadWaitsWhileAnotherWritesThroughTheSameHandle) {
  auto a = fixture_->Join(0);
  std::thread waiter([&] { EXPECT_EQ(a->Get("b", Soon()).value(), "2"); });
  EXPECT_TRUE(a->Set("a", "1", Soon()).ok());
  EXPECT_TRUE(a->Set("b", "2", Soon()).ok());
  waiter.join();
}

// The error comes in time even when somebody sets the system's clock back.
TEST_P(StoreConformance, AKeyThatNobodySetsIsNamed) {
  const StoppedClock stopped;
  auto a = fixture_->Join(0);
  for (absl::Time deadline : {absl::InfinitePast(), absl::Now() + absl::Milliseconds(5)}) {
    absl::Status status = a->Get("address/7", deadline).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("address/7"));
  }
  EXPECT_TRUE(a->Set("address/7", "x", Soon()).ok());
  EXPECT_EQ(a->Look("address/7", Soon()).value(), "x");
}

TEST_P(StoreConformance, AddIsAtomicOverRanks) {
  constexpr int kRanks = 4, kRounds = 25;
  std::vector<std::thread> ranks;
  std::atomic<int> last{0};
  for (int r = 0; r < kRanks; ++r) {
    ranks.emplace_back([&, store = fixture_->Join(r)] {
      for (int i = 0; i < kRounds; ++i) {
        absl::StatusOr<std::int64_t> sum = store->Add("count", 1, Soon());
        ASSERT_TRUE(sum.ok()) << sum.status();
        if (*sum == kRanks * kRounds) ++last;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(last, 1);
  EXPECT_EQ(fixture_->Join(0)->Get("count", Soon()).value(), "100");
  EXPECT_EQ(fixture_->Join(1)->Add("count", -101, Soon()).value(), -1);
}

TEST_P(StoreConformance, AddRefusesWhatIsNoInteger) {
  auto a = fixture_->Join(0);
  ASSERT_TRUE(a->Set("text", "twelve", Soon()).ok());
  EXPECT_EQ(a->Add("text", 1, Soon()).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(a->Set("big", "9223372036854775807", Soon()).ok());
  EXPECT_EQ(a->Add("big", 1, Soon()).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(a->Get("big", Soon()).value(), "9223372036854775807");
}

TEST_P(StoreConformance, DeleteRemoves) {
  auto a = fixture_->Join(0);
  EXPECT_TRUE(a->Delete("k", Soon()).ok());
  ASSERT_TRUE(a->Set("k", "v", Soon()).ok());
  EXPECT_TRUE(a->Delete("k", Soon()).ok());
  EXPECT_EQ(a->Look("k", Soon()).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreConformance, KeysMayBeAnyBytes) {
  auto a = fixture_->Join(0);
  const std::vector<std::string> keys = {"/",
                                         "..",
                                         "a/b",
                                         "a%2Fb",
                                         "A",
                                         "a",
                                         std::string(1, '\0'),
                                         "\xff\n ",
                                         std::string(kLongKey, 'k'),
                                         std::string(kLongKey - 1, 'k')};
  for (std::size_t i = 0; i < keys.size(); ++i) ASSERT_TRUE(a->Set(keys[i], absl::StrCat(i), Soon()).ok());
  for (std::size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(a->Get(keys[i], Soon()).value(), absl::StrCat(i));
}

TEST_P(StoreConformance, LimitsAreErrors) {
  auto a = fixture_->Join(0);
  const std::string long_key(kMaxKeyBytes + 1, 'k');
  for (absl::string_view key : {absl::string_view(), absl::string_view(long_key)}) {
    EXPECT_EQ(a->Set(key, "v", Soon()).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(a->Get(key, Soon()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(a->Look(key, Soon()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(a->Add(key, 1, Soon()).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(a->Delete(key, Soon()).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(a->Set("k", std::string(kMaxValueBytes + 1, 'v'), Soon()).code(), absl::StatusCode::kInvalidArgument);
  const std::string largest(kMaxValueBytes, 'v');
  ASSERT_TRUE(a->Set("k", largest, Soon()).ok());
  EXPECT_TRUE(fixture_->Join(1)->Get("k", Soon()).value() == largest);
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreConformance, testing::ValuesIn(AllStoreKinds()), StoreKindName);

}  // namespace
}  // namespace tutti
