#include "plan/shared_beginning.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "tutti/plan_builder.h"

namespace tutti {
namespace {

using Author = std::function<void(PlanBuilder&)>;

Plan PlanOf(const Author& author) {
  PlanBuilder b("test", {.collective = Collective::kAllReduce, .count = 8}, 0, 3, {.peers_mapped = true});
  author(b);
  return *std::move(b).Build();
}

StepId Shared(const Author& mapped, const Author& staged) { return SharedBeginning(PlanOf(mapped), PlanOf(staged)); }

void Meet(PlanBuilder& b) {
  b.Signal();
  b.WaitAll();
}

void MeetTwice(PlanBuilder& b) {
  Meet(b);
  Meet(b);
}

TEST(SharedBeginningTest, EndBeforeTheFirstDifference) {
  const Author mapped = [](PlanBuilder& b) {
    Meet(b);
    b.Copy(b.out(), b.in().At(1));
    Meet(b);
  };
  const Author staged = [](PlanBuilder& b) {
    Meet(b);
    b.Copy(b.Scratch(DType::kF32, 8), b.in());
    Meet(b);
  };
  EXPECT_EQ(Shared(mapped, staged), 3u);  // a signal, and a wait for each peer
}

// All that follows the meeting may be equal, too, up to what touches a peer's buffer, and up to the next signal.
TEST(SharedBeginningTest, EndWhereBuffersArePeersOrTheNextSignalComes) {
  const Author scratch = [](PlanBuilder& b) {
    const Ref slot = b.Scratch(DType::kF32, 8);
    b.Copy(slot, b.in());
    Meet(b);
    b.Copy(b.out(), slot.At(1));
    Meet(b);
  };
  EXPECT_EQ(Shared(scratch, scratch), 5u);
  const Author buffers = [](PlanBuilder& b) {
    Meet(b);
    b.Copy(b.out(), b.in().At(1));
    Meet(b);
  };
  EXPECT_EQ(Shared(buffers, MeetTwice), 3u);
  // A peer that goes over to other scratch would not see what had been written to its scratch before.
  const Author writes = [](PlanBuilder& b) {
    const Ref slot = b.Scratch(DType::kF32, 8);
    Meet(b);
    b.Copy(slot.At(1), b.in());
    Meet(b);
  };
  EXPECT_EQ(Shared(writes, writes), 0u);
}

// The second signal of a peer says where its scratch lies after the branch.
TEST(SharedBeginningTest, AreNoneWhereScratchIsReadAfterTheBranchWithoutAFurtherWait) {
  const Author reads_late = [](PlanBuilder& b) {
    const Ref slot = b.Scratch(DType::kF32, 8);
    Meet(b);
    b.Copy(b.out(), slot.At(1));
  };
  const Author reads_after_signal = [](PlanBuilder& b) {
    const Ref slot = b.Scratch(DType::kF32, 8);
    Meet(b);
    b.Signal();
    b.WaitFor({1});
    b.Copy(b.out(), slot.At(1));
  };
  EXPECT_EQ(Shared(MeetTwice, reads_late), 0u);
  EXPECT_EQ(Shared(MeetTwice, reads_after_signal), 3u);
}

TEST(SharedBeginningTest, AreNoneUnlessAllPeersAreMetBefore) {
  const Author meets_one = [](PlanBuilder& b) {
    b.Signal();
    b.Wait(1);
    b.Copy(b.out(), b.in().At(1));
  };
  EXPECT_EQ(Shared(meets_one, meets_one), 0u);
  const Author fills_first = [](PlanBuilder& b) {
    b.Copy(b.Scratch(DType::kF32, 8), b.in());
    Meet(b);
  };
  EXPECT_EQ(Shared(Meet, fills_first), 0u);
  EXPECT_EQ(Shared([](PlanBuilder&) {}, [](PlanBuilder&) {}), 0u);
}

TEST(SharedBeginningTest, AreNoneWhereThePlanForMappedBuffersSendsMessages) {
  const Author sends = [](PlanBuilder& b) {
    Meet(b);
    b.Send(1, b.in());
  };
  EXPECT_EQ(Shared(sends, Meet), 0u);
  EXPECT_EQ(Shared(Meet, sends), 3u);
}

}  // namespace
}  // namespace tutti
