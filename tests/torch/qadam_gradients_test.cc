// QAdam steps from the gradients in p.grad(), like every optimizer of torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Sequential;

constexpr int kWarmUp = 3;
const DataParallelOptions kQAdam = {.strategy = "qadam:warmup_steps=3", .allow_unused = true};

TEST(QAdamGradients, ThatAreReplacedCount) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, kQAdam);
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.1));
    // Gradients are zero from the first step on: m stays zero, in both phases.
    const torch::Tensor before = net->parameters()[0].detach().clone();
    for (int step = 0; step < 2 * kWarmUp; ++step) {
      optimizer.zero_grad();
      data.Loss(net, world.rank(), 2).backward();
      net->parameters()[0].mutable_grad() = torch::zeros_like(before);
      optimizer.step();
      EXPECT_TRUE(net->parameters()[0].equal(before)) << "step " << step;
    }
    EXPECT_TRUE(optimizer.frozen());
    replicas.CheckReplicas();
  });
}

TEST(QAdamGradients, ThatAreUndefinedLeaveTheParameterAlone) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, kQAdam);
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.1).weight_decay(0.1));
    torch::Tensor bias = net->parameters()[3];
    for (const bool frozen : {false, true}) {
      EXPECT_EQ(optimizer.frozen(), frozen);
      torch::Tensor before;
      for (int step = 0; step < kWarmUp; ++step) {
        optimizer.zero_grad();
        if (step == 1) {
          bias.requires_grad_(false);
          before = bias.detach().clone();
        }
        data.Loss(net, world.rank(), 2).backward();
        optimizer.step();
      }
      EXPECT_TRUE(bias.equal(before));
      bias.requires_grad_(true);
    }
    replicas.CheckReplicas();
  });
}

// All ranks, and one process without ranks, have a net and equal data: the average is the gradient of one rank.
TEST(QAdamGradients, OfSeveralBackwardsInAStepAddUpInTheWarmUp) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  SetWeights(nets[2], WeightsOf(nets[0]));
  torch::optim::Adam adam(nets[2]->parameters(), 0.01);
  for (int step = 0; step < kWarmUp; ++step) {
    adam.zero_grad();
    for (int part = 0; part < 2; ++part) data.Loss(nets[2], part, 2).backward();
    adam.step();
  }
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, kQAdam);
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01));
    for (int step = 0; step < kWarmUp; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      for (int part = 0; part < 2; ++part) data.Loss(net, part, 2).backward();
      optimizer.step();
    }
    EXPECT_TRUE(WeightsOf(net).allclose(WeightsOf(nets[2]), 1e-4, 1e-6));
  });
}

// The parts of a step in the wrong order: the last backward is the one that keeps its gradients on this rank.
TEST(QAdamGradients, OfOneRankAloneAreRefused) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    const Rank rank = world.rank();
    DataParallel replicas(world, *nets[rank], kQAdam);
    QAdam optimizer(replicas, nets[rank]->parameters());
    const torch::Tensor before = WeightsOf(nets[rank]);
    data.Loss(nets[rank], rank, 2).backward();
    {
      const DataParallel::NoSync no_sync(replicas);
      data.Loss(nets[rank], rank, 2).backward();
    }
    EXPECT_THAT(ErrorOf([&] { optimizer.step(); }), HasSubstr("under NoSync"));
    EXPECT_TRUE(WeightsOf(nets[rank]).equal(before));
    optimizer.zero_grad();
    data.Loss(nets[rank], rank, 2).backward();
    optimizer.step();
    nets[rank]->parameters()[0].mutable_grad() = torch::ones({16, 6});
    EXPECT_THAT(ErrorOf([&] { optimizer.step(); }), HasSubstr("the gradient was not made by a backward()"));
    replicas.CheckReplicas();
  });
}

TEST(QAdamGradients, CannotBeAddedToMomentum) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  std::vector<Sequential> accumulating = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    const Rank rank = world.rank();
    SetWeights(accumulating[rank], WeightsOf(nets[rank]));
    DataParallel replicas(world, *nets[rank], kQAdam);
    QAdam optimizer(replicas, nets[rank]->parameters(), QAdamOptions(0.01));
    DataParallel others(world, *accumulating[rank], kQAdam);
    QAdam other(others, accumulating[rank]->parameters(), QAdamOptions(0.01));
    for (int step = 0; step < 2 * kWarmUp; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      (data.Loss(nets[rank], rank, 2) + data.Loss(nets[rank], 1 - rank, 2)).backward();
      optimizer.step();
      other.zero_grad(step % 2 == 0);
      {
        const DataParallel::NoSync no_sync(others);
        data.Loss(accumulating[rank], rank, 2).backward();
      }
      data.Loss(accumulating[rank], 1 - rank, 2).backward();
      other.step();
    }
    EXPECT_TRUE(WeightsOf(accumulating[rank]).allclose(WeightsOf(nets[rank]), 1e-4, 1e-6));
    const std::string error = ErrorOf([&] { data.Loss(nets[rank], rank, 2).backward(); });
    EXPECT_THAT(error, AllOf(HasSubstr("holds the momentum"), HasSubstr("parameter 2."), HasSubstr("NoSync"),
                             HasSubstr("rank " + std::to_string(rank) + " in step 6")));
    optimizer.zero_grad();
    data.Loss(nets[rank], rank, 2).backward();
    optimizer.step();
    replicas.CheckReplicas();
  });
}

}  // namespace
}  // namespace tutti::nn
