// The algorithm of docs/adding_an_algorithm.md works as it stands there: its record is all that a synchronizer needs.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sync/buckets.h"
#include "sync/exchange.h"
#include "sync/sync_context.h"
#include "tests/harness/world.h"

// Under a name of its own, so that a reader who follows the page can add the algorithm to the library.
#define tutti_algorithm_toy algorithm_of_the_page
#include "docs/examples/algorithms/toy.cc"

namespace tutti {
namespace {

constexpr int kInterval = 3;
constexpr int kCount = 53;

// What ParseStrategy makes of "toy:interval=3".
Strategy StrategyOfThePage() { return {.algorithm = &algorithm_of_the_page, .options = {{"interval", "3"}}}; }

// Trains one rank, whose optimizer adds rank + 1 to every weight, and expects the average after every third step.
void TrainAndExpectAverages(Communicator& world) {
  std::vector<float> weights(kCount, 0);
  std::vector<Parameter> parameters = {{.name = "w", .count = kCount, .shape = "53", .weights = weights.data()}};
  const Layout layout = LayOutBuckets(parameters, 1 << 20, 1 << 20);
  SyncContext context{.communicator = world,
                      .memory = *BucketMemory::Create(world, MemoryKind::kHost),
                      .caller = *Caller::Create(world, CallOwner::Kind::kSynchronizer),
                      .parameters = parameters,
                      .strategy = StrategyOfThePage(),
                      .participants = ParticipantsOf(StrategyOfThePage(), world.size(), world.plan_options())};
  const absl::StatusOr<std::unique_ptr<Exchange>> exchange = MakeExchange(context, layout, {});
  ASSERT_TRUE(exchange.ok()) << exchange.status();

  // n ranks whose sum of steps is n(n+1)/2 per step: the average of all weights grows by (n+1)/2.
  const float average_step = static_cast<float>(world.size() + 1) / 2;
  float expected = 0;
  for (int step = 0; step < 2 * kInterval + 1; ++step) {
    ASSERT_TRUE((*exchange)->BeginForward().ok());
    ASSERT_TRUE((*exchange)->BeforeStep().ok());
    for (float& weight : weights) weight += static_cast<float>(world.rank() + 1);
    ASSERT_TRUE((*exchange)->AfterStep().ok());
    const bool averages = (step + 1) % kInterval == 0;
    expected = averages ? average_step * static_cast<float>(step + 1) : expected + static_cast<float>(world.rank() + 1);
    for (const float weight : weights) ASSERT_EQ(weight, expected) << "after step " << step;
  }
  EXPECT_EQ(context.step, 2 * kInterval + 1);
}

TEST(ToyAlgorithm, AveragesEveryFewSteps) {
  for (const std::string& transport : WorldTransports()) {
    for (int size : {1, 2, 3, 4, 5}) RunWorld(size, {.transport = transport}, TrainAndExpectAverages);
  }
}

TEST(ToyAlgorithm, ReadsItsOptionOnce) {
  const RoundOfStep round_of = RoundOf(StrategyOfThePage(), 4);
  for (std::int64_t step = 0; step < 9; ++step) {
    EXPECT_EQ(round_of(step), step % kInterval == kInterval - 1 ? 0 : kNoExchange) << step;
  }
}

}  // namespace
}  // namespace tutti
