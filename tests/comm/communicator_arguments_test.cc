// What has not been made, is null or is too short is refused where it is given, and crashes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/cost.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

std::unique_ptr<Transport> Alone() { return MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 1 << 20}).value(); }

std::vector<Plan> PlansOfBarrier(int size) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    const CollectiveSpec barrier{.collective = Collective::kBarrier};
    plans.push_back(BuildPlan(**FindSchedule(barrier.collective, "dissemination"), barrier, rank, size, {}).value());
  }
  return plans;
}

absl::Status BindNoStrategy() {
  absl::Status status;
  RunWorld(1, [&](Communicator& comm) {
    float value = 1;
    status = comm.Bind(Strategy{}, DType::kF32, 1, 0, {.out = &value}).status();
  });
  return status;
}

absl::Status Predict(const CollectiveSpec& spec, int size) {
  return PredictSeconds(**FindSchedule(spec.collective, "pairwise"), spec, size, {}).status();
}

TEST(CommunicatorArguments, AreRefused) {
  const int nodes[] = {0, 0};
  struct Case {
    std::string what;
    absl::Status status;
    std::string words;
  };
  const Case cases[] = {
      {"no store", Communicator::Create(Bootstrap{}).status(), "bootstrap.store is null"},
      {"no store, but a transport", Communicator::Create(Bootstrap{}, Alone()).status(), "bootstrap.store is null"},
      {"no transport", Communicator::Create({Identity{}, MakeMemoryStore()}, nullptr).status(), "transport is null"},
      {"no hub", MakeInprocTransport(nullptr, {}).status(), "hub is null"},
      {"a plan of no strategy", BuildPlan(Strategy{}, DType::kF32, 1, 0, 1, {}).status(), "has no algorithm"},
      {"no strategy", BindNoStrategy(), "has no algorithm"},
      {"nodes of some ranks: cost", CostOf(PlansOfBarrier(3), DefaultCostModel(), nodes).status(), "nodes has 2 nodes"},
      {"nodes of some ranks: times", TimesOf(PlansOfBarrier(3), DefaultCostModel(), nodes).status(), "have 3, one for"},
      {"no such type", Predict({.collective = Collective::kAllToAllV, .dtype = static_cast<DType>(99)}, 2), "dtype"},
      {"no ranks", Predict({.collective = Collective::kAllToAllV}, -1), "size -1 must be at least 1"},
  };
  for (const auto& [what, status, words] : cases) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << ": " << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(words)) << what;
  }
}

TEST(CommunicatorArguments, AreNothingWhereThereIsNoError) {
  EXPECT_TRUE(BoundPlan().plan().steps.empty());
  EXPECT_EQ(ChunkOf(10, 0, 0).count, 0);
}

}  // namespace
}  // namespace tutti
