#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "transports/ucx/health.h"

namespace tutti::ucx {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kStart = 1000;
constexpr std::int64_t kDue = 6000;

PeerHealth Healthy() {
  PeerHealth health;
  health.Reset(4);
  return health;
}

// The losses as texts, such as "2: UNAVAILABLE: …".
std::vector<std::string> Texts(const PeerHealth& health) {
  std::vector<std::string> texts;
  for (const Loss& loss : health.losses()) texts.push_back(absl::StrCat(loss.peer, ": ", loss.cause.ToString()));
  return texts;
}

TEST(UcxHealth, ASuspicionBecomesALossWhenItIsDueAndStays) {
  PeerHealth health = Healthy();
  EXPECT_EQ(health.due_ns(), kNeverNanos);
  health.SuspectDeath(2, "silence", kDue);
  EXPECT_EQ(health.due_ns(), kDue);
  health.Conclude(kStart);
  EXPECT_THAT(Texts(health), IsEmpty());
  EXPECT_TRUE(health.gone(2));
  EXPECT_FALSE(health.lost(2));
  health.Conclude(kDue);
  EXPECT_TRUE(health.lost(2));
  EXPECT_EQ(health.cause(2), absl::UnavailableError("rank 2 died: silence"));
  health.Lose(2, absl::InternalError("too late"));
  health.SuspectDeath(2, "closed", kStart);
  health.Conclude(kDue);
  EXPECT_THAT(Texts(health), ElementsAre("2: UNAVAILABLE: rank 2 died: silence"));
  EXPECT_EQ(health.due_ns(), kNeverNanos);
}

TEST(UcxHealth, WhatAPeerTellsBeatsASuspicionOfItThatIsNotDue) {
  PeerHealth health = Healthy();
  health.SuspectDeath(1, "silence", kDue);
  health.SuspectDeath(2, "silence", kDue);
  health.Lose(1, absl::UnavailableError("rank 2 died (told by rank 1)"));
  EXPECT_THAT(Texts(health), ElementsAre("1: UNAVAILABLE: rank 2 died (told by rank 1)"));
  health.Conclude(kDue);
  EXPECT_THAT(Texts(health),
              ElementsAre("1: UNAVAILABLE: rank 2 died (told by rank 1)", "2: UNAVAILABLE: rank 2 died: silence"));
}

TEST(UcxHealth, EarlierSuspicionsConcludeWithOneThatIsDueAndLaterOnesWait) {
  PeerHealth health = Healthy();
  health.SuspectDeath(3, "silence", kDue + 45);
  health.SuspectDeath(1, "silence", kDue);
  health.SuspectDeath(2, "silence", kDue + 1);
  health.Conclude(kDue);
  EXPECT_THAT(Texts(health),
              ElementsAre("3: UNAVAILABLE: rank 3 died: silence", "1: UNAVAILABLE: rank 1 died: silence"));
  EXPECT_EQ(health.due_ns(), kDue + 1);
}

TEST(UcxHealth, AGoodbyeClearsASuspicionAndPreventsTheNext) {
  PeerHealth health = Healthy();
  health.SuspectDeath(1, "silence", kDue);
  health.SaidGoodbye(1);
  health.SuspectDeath(1, "closed", kStart);
  health.Conclude(kNeverNanos);
  EXPECT_THAT(Texts(health), IsEmpty());
  EXPECT_TRUE(health.gone(1));
  EXPECT_FALSE(health.gone(2));
}

}  // namespace
}  // namespace tutti::ucx
