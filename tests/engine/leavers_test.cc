#include "engine/leavers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

// A transport whose answers take 6 ms each.
class SlowTransport final : public ForwardingTransport {
 public:
  SlowTransport() : ForwardingTransport(MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 4096}).value()) {}

  bool HasLeft(Rank peer) override {
    asked.push_back(peer);
    TestClock::now_ns += 6'000'000;
    return peer == left;
  }

  std::vector<Rank> asked;
  Rank left = -1;
};

class LeaversTest : public ::testing::Test {
 protected:
  LeaversTest() { TestClock::step_ns = 0; }
  // The ranks that have left, by a look that wants to know it of each rank, and twice of rank 0.
  std::vector<Rank> Look() {
    std::vector<Rank> left;
    leavers_.BeginLook();
    leavers_.HasLeft(0);
    for (Rank rank = 0; rank < 5; ++rank) {
      if (leavers_.HasLeft(rank)) left.push_back(rank);
    }
    leavers_.EndLook();
    return left;
  }

  SlowTransport transport_;
  Leavers leavers_{transport_, 5, TestClock::Look};
};

TEST_F(LeaversTest, ALookEndsAfterAWhileAndTheNextGoesOn) {
  for (int looks = 0; looks < 4; ++looks) Look();
  EXPECT_THAT(transport_.asked, ElementsAre(0, 1, 2, 3, 4, 0, 1));
}

TEST_F(LeaversTest, WhoHasLeftIsNotAskedForAgain) {
  transport_.left = 1;
  for (int looks = 0; looks < 4; ++looks) EXPECT_THAT(Look(), ElementsAre(1));
  EXPECT_THAT(transport_.asked, ElementsAre(0, 1, 2, 3, 4, 0, 2));
}

}  // namespace
}  // namespace tutti
