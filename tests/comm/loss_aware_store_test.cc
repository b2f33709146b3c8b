#include "comm/loss_aware_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"

namespace tutti {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(30); }

absl::Status GoneIsAnError(Rank gone) { return absl::UnavailableError(std::to_string(gone)); }

TEST(LossAwareStoreTest, GetEndsForARankThatIsLost) {
  const std::shared_ptr<Store> store = MakeLossAwareStore(MakeMemoryStore(), [] { return std::vector<Rank>{3}; });
  const absl::Time begin = absl::Now();
  EXPECT_EQ(store->Get("key", Soon(), GoneIsAnError).status(), absl::UnavailableError("3"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(25));  // before the deadline
}

TEST(LossAwareStoreTest, WhatALostRankHasSetIsTheValue) {
  const std::shared_ptr<Store> base = MakeMemoryStore();
  const std::shared_ptr<Store> store = MakeLossAwareStore(base, [&] {
    EXPECT_TRUE(base->Set("key", "value", Soon()).ok());  // arrives after the last look of Get
    return std::vector<Rank>{3};
  });
  EXPECT_EQ(store->Get("key", Soon(), GoneIsAnError).value_or("none"), "value");
}

TEST(LossAwareStoreTest, GetGoesOnForARankThatDoesNotMatter) {
  int asked = 0;
  const std::shared_ptr<Store> store = MakeLossAwareStore(MakeMemoryStore(), [&] {
    ++asked;
    return std::vector<Rank>{3};
  });
  const absl::Status status =
      store->Get("key", absl::Now() + absl::Milliseconds(700), [](Rank) { return absl::OkStatus(); }).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GE(asked, 1);
}

TEST(LossAwareStoreTest, GetEndsWithTheCallThatWaits) {
  const std::shared_ptr<Store> store = MakeLossAwareStore(
      MakeMemoryStore(), [] { return std::vector<Rank>(); }, [] { return absl::AbortedError("the call"); });
  const absl::Time begin = absl::Now();
  EXPECT_EQ(store->Get("key", Soon(), GoneIsAnError).status(), absl::AbortedError("the call"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(25));  // before the deadline
}

}  // namespace
}  // namespace tutti
