// Which plans a communicator keeps.
#include "comm/plan_cache.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/program.h"
#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

CallKey KeyOf(std::int64_t count) { return {.spec = {.collective = Collective::kBarrier, .count = count}}; }

class PlanCacheTest : public ::testing::Test {
 protected:
  void Insert(std::int64_t count) { cache_.Insert(KeyOf(count), SomeProgram(), *world_.ranks[0].channel); }
  std::shared_ptr<CallPool> InsertWithSpec(PlanCache& cache, std::int64_t count) {
    auto program = std::make_shared<Program>(*SomeProgram());
    program->plan.spec = KeyOf(count).spec;
    return cache.Insert(KeyOf(count), std::move(program), *world_.ranks[0].channel);
  }
  bool Has(std::int64_t count) { return cache_.Find(KeyOf(count)) != nullptr; }

  // Inserts a plan of the spec of its key, and leaves a call of the plan idle, which is returned.
  Call* InsertWithIdleCall(std::int64_t count) {
    Call* const call = InsertWithSpec(cache_, count)->Take();
    call->Release();
    return call;
  }
  // The call of a spec that waits in the place of the spec, which is left idle again; nullptr: none does.
  Call* InPlace(std::int64_t count) {
    const auto is_in_place = [](const CallPool& /*pool*/, const Call* placed) { return placed != nullptr; };
    Call* const call = cache_.TakeIdleAgain(KeyOf(count).spec, nullptr, /*on_device=*/false, is_in_place);
    if (call != nullptr) call->Release();
    return call;
  }

  TwoRanks world_{/*mapped=*/true};
  const std::int64_t one_ = BytesOf(*SomeProgram());
  PlanCache cache_{3 * one_, 1 << 20};
};

TEST_F(PlanCacheTest, IsBoundedByBytesAndDropsWhatWasUsedLeastRecently) {
  for (std::int64_t count = 0; count < 3; ++count) Insert(count);
  EXPECT_TRUE(Has(0));
  Insert(3);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(0));
  EXPECT_TRUE(Has(2));
  EXPECT_TRUE(Has(3));
}

TEST_F(PlanCacheTest, KeepsTheLastPlanHoweverLarge) {
  PlanCache small(one_ / 2, 1 << 20);
  for (std::int64_t count = 0; count < 3; ++count) {
    small.Insert(KeyOf(count), SomeProgram(), *world_.ranks[0].channel);
    EXPECT_NE(small.Find(KeyOf(count)), nullptr);
  }
  EXPECT_EQ(small.Find(KeyOf(1)), nullptr);
}

TEST_F(PlanCacheTest, ACallInUseOutlivesItsPlace) {
  Insert(0);
  Call* const call = cache_.Find(KeyOf(0))->Take();
  for (std::int64_t count = 1; count < 5; ++count) Insert(count);
  EXPECT_FALSE(Has(0));
  EXPECT_EQ(call->program().plan.spec.collective, Collective::kBarrier);
  call->Release();
}

TEST_F(PlanCacheTest, CallsOfSeveralSpecsWaitInPlacesOfTheirOwn) {
  std::vector<Call*> calls;
  for (std::int64_t count = 0; count < 3; ++count) calls.push_back(InsertWithIdleCall(count));
  for (int turn = 0; turn < 3; ++turn) {
    for (std::int64_t count = 0; count < 3; ++count) {
      EXPECT_EQ(InPlace(count), calls[static_cast<std::size_t>(count)]) << count;
    }
  }
}

TEST_F(PlanCacheTest, ACallGivesItsPlaceToTheSpecThatIsCalledNow) {
  std::int64_t other = 1;
  while (IdleCalls::PlaceOf(KeyOf(other).spec) != IdleCalls::PlaceOf(KeyOf(0).spec)) ++other;
  Call* const first = InsertWithIdleCall(0);
  Call* const second = InsertWithIdleCall(other);  // its place is taken
  EXPECT_EQ(InPlace(0), first);
  EXPECT_EQ(InPlace(other), nullptr);
  Call* const again = cache_.TakeIdle(KeyOf(other));
  EXPECT_EQ(again, second);
  again->Release();
  EXPECT_EQ(InPlace(other), second);
  EXPECT_EQ(cache_.TakeIdle(KeyOf(0)), first);  // from the list of its pool
  first->Release();
}

TEST_F(PlanCacheTest, ACallThatIsTakenFromItsPlaceKeepsItsPlan) {
  for (std::int64_t count = 0; count < 3; ++count) InsertWithIdleCall(count);
  EXPECT_NE(InPlace(0), nullptr);
  InsertWithIdleCall(3);
  EXPECT_TRUE(Has(0));
  EXPECT_FALSE(Has(1));
}

// Plans that were used since calls went last come forward in the list of plans, but not before the plan that is asked
// for.
TEST_F(PlanCacheTest, IdleCallsThatGoLeaveThePlanThatIsAskedForTheFirstOne) {
  PlanCache cache(3 * one_, /*most_idle_bytes=*/-1);  // all idle calls go each time, but for those of the first plan
  InsertWithSpec(cache, 0)->NoteUse();
  const std::shared_ptr<CallPool> pool = InsertWithSpec(cache, 1);
  EXPECT_EQ(pool->spec(), KeyOf(1).spec);

  pool->Take()->Release();
  cache.Find(KeyOf(0))->NoteUse();
  Call* call = cache.TakeIdle(KeyOf(1));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->program().plan.spec, KeyOf(1).spec);
  ASSERT_TRUE(CallPool::PutAway(call));  // to the list of its pool

  cache.Find(KeyOf(0))->NoteUse();
  EXPECT_EQ(cache.Find(KeyOf(1)), pool);
  const auto in_list = [](const CallPool& /*pool*/, const Call* placed) { return placed == nullptr; };
  call = cache.TakeIdleAgain(KeyOf(1).spec, nullptr, /*on_device=*/false, in_list);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call->program().plan.spec, KeyOf(1).spec);
  call->Release();
}

// Also where the plan that is asked for is behind another one in the list of plans.
TEST_F(PlanCacheTest, ACallThatIsTakenFromItsPlaceLetsThePlanBeforeItLoseItsIdleCalls) {
  PlanCache cache(3 * one_, /*most_idle_bytes=*/-1);
  for (const std::int64_t count : {1, 0}) InsertWithSpec(cache, count);
  cache.Find(KeyOf(0))->Take()->Release();
  cache.Find(KeyOf(1))->Take()->Release();
  const auto is_in_place = [](const CallPool& /*pool*/, const Call* placed) { return placed != nullptr; };
  Call* const call = cache.TakeIdleAgain(KeyOf(0).spec, nullptr, /*on_device=*/false, is_in_place);
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(cache.TakeIdle(KeyOf(1)), nullptr);
  call->Release();
}

}  // namespace
}  // namespace tutti
