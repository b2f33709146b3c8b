#include "engine/inquiries.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace tutti {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kStart = 1'000'000 * kMs;

// Two ranks of one process; rank 1 answers when the test tells it to.
class InquiriesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto hub = MakeInprocHub(2, 1);
    std::vector<std::string> addresses;
    for (auto& transport : transports_) {
      transport = MakeInprocTransport(hub, {.region_bytes = 4096}).value();
      addresses.push_back(transport->Address().value());
    }
    for (Rank rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(transports_[rank]->Connect(rank, addresses, absl::InfiniteFuture()), absl::OkStatus());
    }
    transports_[1]->ShowWaitsFor(&awaited_);
  }

  void LetAnswer() {
    transports_[1]->Progress();
    transports_[0]->Progress();
  }

  std::atomic<Rank> awaited_ = 0;
  std::unique_ptr<Transport> transports_[2];
};

TEST_F(InquiriesTest, ASilentRankHasNoAnswer) {
  Inquiries inquiries(*transports_[0], 2);
  EXPECT_EQ(inquiries.AnswerOf(1, kStart), std::nullopt);
  for (int i = 0; i < 10; ++i) {
    inquiries.Ask(1, kStart + i * 200 * kMs);
    EXPECT_EQ(inquiries.AnswerOf(1, kStart + i * 200 * kMs), std::nullopt);
  }
}

TEST_F(InquiriesTest, AnAnswerIsReadAgainAndAgainUntilItIsOld) {
  Inquiries inquiries(*transports_[0], 2);
  inquiries.Ask(1, kStart);
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 10 * kMs), 0);
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 400 * kMs), 0);
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 600 * kMs), std::nullopt);
}

// A rank that was asked while it was stopped answers when it goes on, perhaps long before the next call looks.
TEST_F(InquiriesTest, AnAnswerThatNobodyHasLookedAtIsOldToo) {
  Inquiries inquiries(*transports_[0], 2);
  inquiries.Ask(1, kStart);
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 10'000 * kMs), std::nullopt);
  awaited_ = 7;
  inquiries.Ask(1, kStart + 10'000 * kMs);
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 10'000 * kMs), std::nullopt);
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 10'010 * kMs), 7);
}

// A rank that came late to its call, and had not begun to wait when it was asked, is not named as the culprit for long.
TEST_F(InquiriesTest, WhoHasAnsweredIsAskedAgainAndTheOldAnswerStaysUntilTheNew) {
  Inquiries inquiries(*transports_[0], 2);
  awaited_ = -1;
  inquiries.Ask(1, kStart);
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart), -1);
  awaited_ = 7;
  inquiries.Ask(1, kStart + 50 * kMs);  // the second question comes too soon and is not sent
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 50 * kMs), -1);
  inquiries.Ask(1, kStart + 150 * kMs);
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 150 * kMs), -1);
  LetAnswer();
  EXPECT_EQ(inquiries.AnswerOf(1, kStart + 160 * kMs), 7);
}

}  // namespace
}  // namespace tutti
