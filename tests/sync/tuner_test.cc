// The choice between tunings, from times that are made up.
#include "sync/tuner.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

namespace tutti {
namespace {

constexpr double kRefused = std::numeric_limits<double>::infinity();
const Tuning kStart = {.bucket_bytes = 64 << 10, .first_bucket_bytes = 64 << 10, .schedule = "auto"};

// Tunes by the times that `seconds` gives for a tuning and the number of the trial; checks the bound.
Tuner Tuned(std::vector<TuningChange> changes, const std::function<double(const Tuning&, int trial)>& seconds) {
  Tuner tuner(kStart, std::move(changes));
  int trials = 0;
  for (; !tuner.done() && trials <= tuner.most_trials(); ++trials) tuner.Add(seconds(tuner.next(), trials));
  EXPECT_LE(trials, tuner.most_trials());
  EXPECT_EQ(tuner.trials().size(), static_cast<std::size_t>(trials));
  return tuner;
}

const std::vector<TuningChange> kSizes = {{.bucket_bytes = 1 << 20}, {.bucket_bytes = 5 << 20}};

TEST(Tuner, KeepsTheStartOfTies) {
  const Tuner tuner = Tuned(kSizes, [](const Tuning&, int) { return 1.0; });
  EXPECT_EQ(tuner.next(), kStart);
  EXPECT_EQ(tuner.trials().size(), 3);  // nothing was better, so nothing is measured again
}

TEST(Tuner, KeepsTheStartWhereLittleIsGained) {
  EXPECT_EQ(Tuned(kSizes, [](const Tuning& tuning, int) { return tuning == kStart ? 1.0 : 0.96; }).next(), kStart);
}

TEST(Tuner, TakesTheFastest) {
  const Tuner tuner = Tuned(kSizes, [](const Tuning& tuning, int) {
    return tuning.bucket_bytes == 5 << 20 ? 0.5 : tuning.bucket_bytes == 1 << 20 ? 0.8 : 1.0;
  });
  EXPECT_EQ(tuner.next().bucket_bytes, 5 << 20);
  EXPECT_EQ(tuner.next().first_bucket_bytes, 1 << 20);
  EXPECT_EQ(tuner.best().seconds, 0.5);
  EXPECT_EQ(tuner.start().seconds, 1.0);
  EXPECT_EQ(tuner.trials().size(), 5);
}

TEST(Tuner, KeepsTheStartWhenALuckyTimeIsNotRepeated) {
  const Tuner tuner = Tuned(kSizes, [](const Tuning&, int trial) { return trial == 1 ? 0.5 : 1.0; });
  EXPECT_EQ(tuner.next(), kStart);
  EXPECT_EQ(tuner.best().seconds, 1.0);
  EXPECT_EQ(tuner.trials().size(), 5);
}

TEST(Tuner, KeepsTheStartWhenItsFirstTimesWereSlow) {
  EXPECT_EQ(Tuned(kSizes, [](const Tuning&, int trial) { return trial == 0 ? 9.0 : 1.0; }).next(), kStart);
}

TEST(Tuner, TriesEachPropertyOnTheBestOfTheOthers) {
  const std::vector<TuningChange> changes = {
      {.bucket_bytes = 1 << 20}, {.bucket_bytes = 5 << 20}, {.schedule = "ring"}, {.hierarchical = true}};
  std::vector<Tuning> tried;
  const Tuner tuner = Tuned(changes, [&](const Tuning& tuning, int) {
    tried.push_back(tuning);
    return (tuning.bucket_bytes == 1 << 20 ? 0.5 : 1.0) * (tuning.schedule == "ring" ? 1.0 : 0.9) *
           (tuning.hierarchical ? 0.5 : 1.0);
  });
  ASSERT_EQ(tried.size(), 7);
  EXPECT_EQ(tried[2].bucket_bytes, 5 << 20);
  EXPECT_EQ(tried[3].bucket_bytes, 1 << 20);
  EXPECT_EQ(tried[3].schedule, "ring");
  EXPECT_EQ(tried[4].schedule, "auto");
  EXPECT_TRUE(tried[4].hierarchical);
  EXPECT_EQ(tried[5], kStart);
  EXPECT_EQ(tried[6], tried[4]);
  EXPECT_EQ(tuner.next(), tried[4]);
}

TEST(Tuner, PassesOverWhatIsRefused) {
  EXPECT_EQ(Tuned(kSizes, [](const Tuning& tuning, int) { return tuning == kStart ? 1.0 : kRefused; }).next(), kStart);
  EXPECT_EQ(Tuned(kSizes,
                  [](const Tuning& tuning, int) {
                    return tuning == kStart ? 1.0 : tuning.bucket_bytes == 1 << 20 ? kRefused : 0.5;
                  })
                .next()
                .bucket_bytes,
            5 << 20);
}

TEST(Tuner, EndsAfterTheStartWithoutChanges) {
  const Tuner tuner = Tuned({}, [](const Tuning&, int) { return 1.0; });
  EXPECT_EQ(tuner.next(), kStart);
  EXPECT_EQ(tuner.trials().size(), 1);
}

}  // namespace
}  // namespace tutti
