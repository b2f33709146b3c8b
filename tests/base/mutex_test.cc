#include "base/mutex.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/harness/stopped_clock.h"

namespace tutti {
namespace {

TEST(ConditionTest, AWaitEndsInTimeThoughTheSystemsClockStandsStill) {
  const StoppedClock stopped;
  Mutex mutex;
  Condition never;
  const MutexLock lock(mutex);
  EXPECT_FALSE(never.WaitUntil(mutex, NanosIn(absl::Milliseconds(5)), [] { return false; }));
}

}  // namespace
}  // namespace tutti
