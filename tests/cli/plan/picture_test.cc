// Which plans `tutti plan --draw` draws; tests/cli/plan/timelines.py looks at pictures.
#include "bindings/cli/plan/picture.h"

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The picture of a broadcast of 20 elements in a world of `ranks` ranks, each of which writes its plan.
absl::StatusOr<std::string> PictureBy(int ranks, const std::function<void(PlanBuilder&)>& author,
                                      bool caller_verifies = false) {
  PlanFamily family;
  family.choice = "the test";
  family.ranks = ranks;
  family.build = [&author, ranks](Rank rank) {
    PlanBuilder b("test", {.collective = Collective::kBroadcast, .count = 20}, rank, ranks, {.peers_mapped = true});
    author(b);
    return std::move(b).Build();
  };
  PlanRequest request;
  request.ranks = ranks;
  request.count = 20;
  return PictureOf(request, family, DefaultCostModel(), 0, caller_verifies);
}

void SendAlong(PlanBuilder& b) {
  if (b.rank() == 0) b.Copy(b.out(), b.in());
  if (b.rank() > 0) b.Recv(b.rank() - 1, b.out());
  if (b.rank() + 1 < b.size()) b.Send(b.rank() + 1, b.rank() == 0 ? b.in() : b.out());
}

TEST(PlanPictureTest, RightPlansAreDrawn) {
  const absl::StatusOr<std::string> picture = PictureBy(3, SendAlong);
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_THAT(*picture, AllOf(HasSubstr("by the test."), Not(HasSubstr("Not verified"))));
}

TEST(PlanPictureTest, PlansOfManyRanksAreNotVerifiedWhichTheHeadingSays) {
  const absl::StatusOr<std::string> picture = PictureBy(257, SendAlong);
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_THAT(*picture, HasSubstr("Not verified"));
  const absl::StatusOr<std::string> verified = PictureBy(257, SendAlong, /*caller_verifies=*/true);
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_THAT(*verified, Not(HasSubstr("Not verified")));
}

TEST(PlanPictureTest, WrongPlansAreNot) {
  const absl::Status no_receive = PictureBy(2, [](PlanBuilder& b) {
                                    if (b.rank() == 0) b.Send(1, b.in());
                                  }).status();
  EXPECT_EQ(no_receive.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(no_receive.message(), AllOf(HasSubstr("a plan is wrong"), HasSubstr("--draw-steps")));
  const absl::Status deadlock = PictureBy(2, [](PlanBuilder& b) {
                                  b.Recv(1 - b.rank(), b.out());
                                  b.Send(1 - b.rank(), b.out());
                                }).status();
  EXPECT_THAT(deadlock.message(), HasSubstr("a plan is wrong"));
}

}  // namespace
}  // namespace tutti::cli
