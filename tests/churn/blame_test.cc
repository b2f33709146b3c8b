// Tests of JudgeError and BlamedRanks: which errors they take for ones that name the right rank.
#include "tests/churn/blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::churn {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlamedRanksTest, ReadsWhatErrorsSay) {
  EXPECT_THAT(BlamedRanks("UNAVAILABLE: rank 2 died: its connection closed (told by rank 1)"), ElementsAre(2));
  EXPECT_THAT(BlamedRanks("rank 0 waited 2s for rank 3 (through rank 1, which waits too) in call 7"), ElementsAre(3));
  EXPECT_THAT(BlamedRanks("exchange 'address' of 4 ranks at noon: missing ranks: 1, 3; waiting"), ElementsAre(1, 3));
  EXPECT_THAT(BlamedRanks("exchange 'address' of 4 ranks: missing ranks: 10"), ElementsAre(10));
  EXPECT_THAT(BlamedRanks("not every rank has read it: rank 2 is gone, it has died or left"), ElementsAre(2));
  EXPECT_THAT(BlamedRanks("rank 2 has left; known, too: rank 0 waited 2s for rank 3 in call 7"), ElementsAre(2));
  EXPECT_THAT(BlamedRanks("rank 1 has not found rank 0 of job 'j' in time"), ElementsAre(0));
}

TEST(BlamedRanksTest, SeesThatNobodyIsNamed) {
  EXPECT_THAT(BlamedRanks("store server at 127.0.0.1:80: connection closed"), IsEmpty());
  EXPECT_THAT(BlamedRanks("all ranks have contributed, but the last of them only after the deadline"), IsEmpty());
}

class JudgeErrorTest : public ::testing::Test {
 protected:
  static std::optional<Kind> KindOf(Fault fault, absl::StatusCode code, const std::string& error) {
    const std::optional<Finding> finding = JudgeError({.fault = fault, .victim = 2}, code, error);
    if (!finding.has_value()) return std::nullopt;
    return finding->kind;
  }
};

TEST_F(JudgeErrorTest, TheVictimIsNamedWithTheCodeOfItsFault) {
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kUnavailable, "rank 2 died"), std::nullopt);
  EXPECT_EQ(KindOf(Fault::kLeave, absl::StatusCode::kUnavailable, "rank 2 has left"), std::nullopt);
  EXPECT_EQ(KindOf(Fault::kStop, absl::StatusCode::kDeadlineExceeded, "rank 0 waited 2s for rank 2"), std::nullopt);
  EXPECT_EQ(KindOf(Fault::kAbort, absl::StatusCode::kAborted, "rank 2 gives up (told by rank 2)"), std::nullopt);
}

TEST_F(JudgeErrorTest, AnotherRankOrNoneIsWrongBlame) {
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kUnavailable, "rank 1 died"), Kind::kWrongBlame);
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kUnavailable, "connection closed"), Kind::kWrongBlame);
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kDeadlineExceeded, "missing ranks: 1, 2"), Kind::kWrongBlame);
  EXPECT_EQ(KindOf(Fault::kAbort, absl::StatusCode::kUnavailable, "rank 2 died"), Kind::kWrongBlame);
}

TEST_F(JudgeErrorTest, InAGroupWithoutTheVictimAMemberMayHaveLeft) {
  const auto kind = [](const std::string& error) {
    return KindOf(Fault::kKill, absl::StatusCode::kUnavailable, error);
  };
  EXPECT_EQ(kind("rank 1 has left (its program has ended) without call 0 (in a group of ranks 0, 1)"), std::nullopt);
  EXPECT_EQ(kind("rank 1 has left (its program has ended) without call 0 (in a group of ranks 0, 1, 2)"),
            Kind::kWrongBlame);
  EXPECT_EQ(kind("rank 3 has left (its program has ended) without call 0 (in a group of ranks 0, 1)"),
            Kind::kWrongBlame);
  EXPECT_EQ(kind("rank 1 died (in a group of ranks 0, 1)"), Kind::kWrongBlame);
  EXPECT_EQ(KindOf(Fault::kAbort, absl::StatusCode::kUnavailable, "rank 1 has left (in a group of ranks 1, 2)"),
            std::nullopt);
  EXPECT_EQ(KindOf(Fault::kAbort, absl::StatusCode::kUnavailable, "rank 1 has left"), Kind::kWrongBlame);
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kDeadlineExceeded,
                   "rank 0 waited for rank 1, which has left (in a group of ranks 0, 1)"),
            Kind::kWrongBlame);
}

TEST_F(JudgeErrorTest, ADeathToldByADeadlineIsLate) {
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kDeadlineExceeded, "missing ranks: 2"), Kind::kLateNews);
}

TEST_F(JudgeErrorTest, ADeathBeforeTheFirstWordToTheStoreMayBeToldByADeadline) {
  const std::string at_once = "joining job 'x' of 3 ranks: missing ranks: 2";
  EXPECT_EQ(KindOf(Fault::kKillJoin, absl::StatusCode::kDeadlineExceeded, at_once), std::nullopt);
  EXPECT_EQ(KindOf(Fault::kKill, absl::StatusCode::kDeadlineExceeded, at_once), Kind::kLateNews);
  EXPECT_EQ(KindOf(Fault::kKillJoin, absl::StatusCode::kDeadlineExceeded, "exchange 'address': missing ranks: 2"),
            Kind::kLateNews);
}

}  // namespace
}  // namespace tutti::churn
