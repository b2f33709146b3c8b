#include <gtest/gtest.h>

#include "base/clock.h"
#include "transports/ucx/health.h"

namespace tutti::ucx {
namespace {

constexpr std::int64_t kStart = 1000;
constexpr std::int64_t kDue = 6000;

PeerHealth Healthy() {
  PeerHealth health;
  health.Reset(4);
  return health;
}

TEST(UcxHealth, ASuspicionBecomesAVerdictWhenItIsDueAndStays) {
  PeerHealth health = Healthy();
  EXPECT_EQ(health.due_ns(), kNeverNanos);
  health.Suspect(2, "silence", kDue);
  EXPECT_EQ(health.due_ns(), kDue);
  EXPECT_TRUE(health.Verdict(kStart).ok());
  EXPECT_EQ(health.Verdict(kDue), absl::UnavailableError("rank 2 died: silence"));
  health.Told(absl::InternalError("too late"));
  EXPECT_EQ(health.Verdict(kDue), absl::UnavailableError("rank 2 died: silence"));
  EXPECT_EQ(health.due_ns(), kNeverNanos);
}

TEST(UcxHealth, AToldCauseBeatsASuspicionThatIsNotDue) {
  PeerHealth health = Healthy();
  health.Suspect(1, "silence", kDue);
  health.Told(absl::UnavailableError("rank 2 died (told by rank 1)"));
  EXPECT_EQ(health.Verdict(kDue), absl::UnavailableError("rank 2 died (told by rank 1)"));
}

TEST(UcxHealth, TheFirstOfSeveralSuspicionsIsNamed) {
  PeerHealth health = Healthy();
  health.Suspect(3, "silence", kDue + 45);
  health.Suspect(1, "silence", kDue);
  EXPECT_EQ(health.Verdict(kDue), absl::UnavailableError("rank 3 died: silence"));
}

TEST(UcxHealth, AGoodbyeClearsASuspicionAndPreventsTheNext) {
  PeerHealth health = Healthy();
  health.Suspect(1, "silence", kDue);
  health.SaidGoodbye(1);
  health.Suspect(1, "closed", kStart);
  EXPECT_TRUE(health.Verdict(kNeverNanos).ok());
  EXPECT_TRUE(health.gone(1));
  EXPECT_FALSE(health.gone(2));
}

}  // namespace
}  // namespace tutti::ucx
