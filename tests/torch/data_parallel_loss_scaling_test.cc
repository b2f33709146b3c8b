// Scaled losses: ranks agree on an overflow that only one rank sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Sequential;

TEST(AgreeOnOverflow, OneRankIsEnough) {
  std::vector<Sequential> nets = Nets(3);
  RunWorld(3, [&](Communicator& world) {
    DataParallel replicas(world, *nets[world.rank()], {.strategy = "decentralized"});
    for (Rank overflowing = 0; overflowing < 3; ++overflowing) {
      EXPECT_TRUE(replicas.AgreeOnOverflow(world.rank() == overflowing));
      EXPECT_FALSE(replicas.AgreeOnOverflow(false));
    }
  });
}

TEST(AgreeOnOverflow, ARankWithItsOwnPaceDecidesAlone) {
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    DataParallel replicas(world, *nets[world.rank()], {.strategy = "async"});
    if (world.rank() == 1) return;
    EXPECT_TRUE(replicas.AgreeOnOverflow(true));
    EXPECT_FALSE(replicas.AgreeOnOverflow(false));
  });
}

// [unscale]
// Divides the gradients by `scale`; whether one of them is no finite number.
bool Unscale(const std::vector<torch::Tensor>& parameters, double scale) {
  const torch::NoGradGuard no_grad;
  bool overflow = false;
  for (const torch::Tensor& parameter : parameters) {
    parameter.grad().div_(scale);
    overflow |= !torch::isfinite(parameter.grad()).all().item<bool>();
  }
  return overflow;
}
// [unscale]

TEST(LossScaling, AnOverflowOfOneRankSkipsTheStepOfAll) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  std::vector<double> scales(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = "decentralized"});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    double scale = 1024;
    std::vector<bool> skipped;
    for (int step = 0; step < 5; ++step) {
      const double too_much = step == 2 && world.rank() == 1 ? std::numeric_limits<double>::infinity() : 1;
      const torch::Tensor loss = data.Loss(net, world.rank(), world.size()) * too_much;
      // [step]
      optimizer.zero_grad();
      replicas.SetLossScale(scale);
      (loss * scale).backward();
      const bool overflow = replicas.AgreeOnOverflow(Unscale(net->parameters(), scale));
      replicas.Step([&] {
        if (!overflow) optimizer.step();
      });
      if (overflow) scale /= 2;
      // [step]
      skipped.push_back(overflow);
    }
    EXPECT_THAT(skipped, ElementsAre(false, false, true, false, false));
    EXPECT_TRUE(torch::isfinite(WeightsOf(net)).all().item<bool>());
    scales[world.rank()] = scale;
  });
  EXPECT_THAT(scales, Each(512));
}

// Scales that are powers of two change no bit of the mantissas that the codec keeps, sends and holds back.
TEST(LossScaling, WhatACodecHoldsBackFollowsTheScale) {
  const Data data;
  for (const char* strategy : {"bytegrad:codec=topk,error_feedback=true", "bytegrad:codec=sign,error_feedback=true"}) {
    std::vector<torch::Tensor> weights;
    for (const bool scaled : {false, true}) {
      torch::manual_seed(1);
      std::vector<Sequential> nets = Nets(2);
      RunWorld(2, [&](Communicator& world) {
        Sequential& net = nets[world.rank()];
        DataParallel replicas(world, *net, {.strategy = strategy});
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        for (int step = 0; step < 6; ++step) {
          const double scale = scaled && step % 2 == 1 ? 1024 : 1;
          optimizer.zero_grad();
          replicas.SetLossScale(scale);
          (data.Loss(net, world.rank(), world.size()) * scale).backward();
          Unscale(net->parameters(), scale);
          replicas.Step(optimizer);
        }
      });
      weights.push_back(WeightsOf(nets[0]));
    }
    EXPECT_TRUE(torch::equal(weights[0], weights[1])) << strategy;
  }
}

TEST(LossScaling, AScaleOfNothingIsAnErrorThatNamesItsRank) {
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    DataParallel replicas(world, *nets[world.rank()], {});
    try {
      replicas.SetLossScale(world.rank() == 1 ? 0 : 2);
      ADD_FAILURE() << "no error";
    } catch (const c10::ValueError& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    }
  });
}

}  // namespace
}  // namespace tutti::nn
