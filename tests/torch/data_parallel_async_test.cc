// Modules trained with async, whose ranks have a pace and an end of their own: no step waits for another rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/normalized.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;

const DataParallelOptions kAsync = {.strategy = "async:sync_interval_ms=1"};

void Train(Normalized& net, DataParallel& replicas, torch::optim::Optimizer& optimizer, const Data& data,
           Communicator& world, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    net.forward(data.inputs.narrow(0, 16 * world.rank(), 16)).square().mean().backward();
    replicas.Step(optimizer);
  }
}

TEST(Async, ARankThatEndsEarlyLeavesTheOthersToTrainOn) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  std::latch left(1);
  RunWorld(2, [&](Communicator& world) {
    {
      Normalized& net = *nets[world.rank()];
      DataParallel replicas(world, net, kAsync);
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      Train(net, replicas, optimizer, data, world, 10);
      if (world.rank() == 1) {
        left.wait();
        Train(net, replicas, optimizer, data, world, 50);
      }
    }
    if (world.rank() == 0) left.count_down();
  });
  EXPECT_EQ(nets[1]->norm->num_batches_tracked.item<int>(), 60);
}

TEST(Async, ARankThatTellsOfItsFailureEndsTheStepsOfTheOthers) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  std::latch warm(2);
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    // The next round is far away: nothing but the steps themselves can tell.
    DataParallel replicas(world, net, {.strategy = "async:sync_interval_ms=20000,warmup_steps=2"});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 4);
    warm.arrive_and_wait();
    if (world.rank() == 1) world.Abort(absl::InternalError("rank 1 failed: a wrong sample"));
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    std::string error;
    while (error.empty() && absl::Now() < deadline) {
      error = ErrorOf([&] { Train(net, replicas, optimizer, data, world, 1); });
    }
    EXPECT_THAT(error, HasSubstr("rank 1 failed: a wrong sample"));
    replicas.Stop();
  });
}

TEST(Async, FlushMakesBuffersEqualAfterAnyNumberOfSteps) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  std::latch trained(1);
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, kAsync);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    if (world.rank() == 1) {
      Train(net, replicas, optimizer, data, world, 60);
      trained.count_down();
    } else {
      trained.wait();
      Train(net, replicas, optimizer, data, world, 10);
    }
    EXPECT_EQ(net.norm->num_batches_tracked.item<int>(), world.rank() == 0 ? 10 : 60);
    replicas.Flush();
    EXPECT_EQ(net.norm->num_batches_tracked.item<int>(), 10);  // the number of rank 0
    replicas.CheckReplicas();
  });
}

TEST(Async, EveryStepOfTheWarmUpMakesBuffersEqual) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  std::vector<std::vector<torch::Tensor>> means(2);
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, {.strategy = "async:sync_interval_ms=1,warmup_steps=3"});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      Train(net, replicas, optimizer, data, world, 1);
      means[world.rank()].push_back(net.norm->running_mean.clone());
    }
  });
  for (int step = 0; step < 4; ++step) EXPECT_EQ(means[0][step].equal(means[1][step]), step < 3) << "step " << step;
}

TEST(Async, OneRankCanStopTheRoundsOfAll) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, kAsync);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 5);
    if (world.rank() == 1) replicas.Stop();
    Train(net, replicas, optimizer, data, world, 5);
    replicas.Flush();
    replicas.CheckReplicas();
  });
}

}  // namespace
}  // namespace tutti::nn
