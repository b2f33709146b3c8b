// Which plans a communicator keeps.
#include "comm/plan_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "engine/program.h"
#include "tests/engine/two_ranks.h"

namespace tutti {
namespace {

CallKey KeyOf(std::int64_t count) { return {.spec = {.collective = Collective::kBarrier, .count = count}}; }

class PlanCacheTest : public ::testing::Test {
 protected:
  void Insert(std::int64_t count) { cache_.Insert(KeyOf(count), SomeProgram(), *world_.ranks[0].channel); }
  bool Has(std::int64_t count) { return cache_.Find(KeyOf(count)) != nullptr; }

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

}  // namespace
}  // namespace tutti
