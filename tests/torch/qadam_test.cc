// The optimizer of `qadam` as users of torch meet it.
#include "tutti/torch/qadam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/normalized.h"
#include "tests/torch/small_net.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

struct Squares {
  torch::Tensor Loss(Sequential& net) const { return torch::mse_loss(net->forward(inputs), targets); }

  torch::Tensor inputs = (torch::manual_seed(1), torch::randn({64, 20}));
  torch::Tensor targets = inputs.square().mean(1, /*keepdim=*/true);
};

Sequential MakeWideNet() { return Sequential(Linear(20, 64), ReLU(), Linear(64, 1)); }

// Makes a net for each rank, and one for comparison, with equal weights, before the ranks start, since torch's random
// numbers belong to the process.
std::vector<Sequential> EqualNets(int count) {
  torch::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  std::vector<Sequential> nets;
  for (int i = 0; i < count; ++i) {
    nets.push_back(MakeWideNet());
    for (std::size_t p = 0; p < nets[i]->parameters().size(); ++p) {
      nets[i]->parameters()[p].copy_(nets[0]->parameters()[p]);
    }
  }
  return nets;
}

DataParallelOptions QAdamStrategy(int warmup_steps) {
  return {.strategy = "qadam:block=256,warmup_steps=" + std::to_string(warmup_steps),
          .bucket_bytes = 4096,
          .first_bucket_bytes = 512};
}

// Two groups of parameters, weights and biases, as is usual.
template <typename Options>
std::vector<torch::optim::OptimizerParamGroup> TwoGroups(Sequential& net, const Options& of_weights,
                                                         const Options& of_biases) {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (const torch::Tensor& parameter : net->parameters())
    (parameter.dim() > 1 ? weights : biases).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights, std::make_unique<Options>(of_weights));
  groups.emplace_back(biases, std::make_unique<Options>(of_biases));
  return groups;
}

// All ranks have equal data: the average gradient is, bit for bit, the gradient of one rank.
TEST(QAdam, InWarmUpItIsTorchsAdam) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(3);
  const auto configure = [](auto options) {
    return options.betas(std::make_tuple(0.8, 0.99)).eps(1e-7).weight_decay(0.01);
  };
  torch::optim::Adam adam(TwoGroups(nets[2], configure(torch::optim::AdamOptions(0.01)), torch::optim::AdamOptions()));
  for (int step = 0; step < 50; ++step) {
    adam.zero_grad();
    data.Loss(nets[2]).backward();
    adam.step();
  }
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, QAdamStrategy(1000));
    QAdam optimizer(replicas, TwoGroups(net, configure(QAdamOptions(0.01)), QAdamOptions()));
    for (int step = 0; step < 50; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      data.Loss(net).backward();
      optimizer.step();
    }
    replicas.CheckReplicas();
  });
  EXPECT_LE(LargestDifference(*nets[0], *nets[2]), 1e-6);
}

TEST(QAdam, LearnsInEitherPhaseAndSendsLessAfterTheWarmUp) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, QAdamStrategy(15));
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01));
    const auto train = [&](int steps) {
      const double before = data.Loss(net).item<double>();
      for (int step = 0; step < steps; ++step) {
        optimizer.step([&] {
          optimizer.zero_grad();
          const torch::Tensor loss = data.Loss(net);
          loss.backward();
          return loss;
        });
      }
      EXPECT_LT(data.Loss(net).item<double>(), 0.8 * before);
      return replicas.TakeStatistics().wire_bytes;
    };
    const std::int64_t warm_up = train(15);
    EXPECT_TRUE(optimizer.frozen());
    EXPECT_LT(train(15), warm_up / 2);
    replicas.CheckReplicas();
  });
}

TEST(QAdam, FollowsSchedulersAndParametersThatMove) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, QAdamStrategy(2));
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01));
    const auto step = [&] {
      optimizer.zero_grad();
      data.Loss(net).backward();
      optimizer.step();
    };
    torch::optim::StepLR scheduler(optimizer, 1, 0.0);
    for (int i = 0; i < 2; ++i) scheduler.step();  // torch's first call changes nothing
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0);
    step();
    const torch::Tensor before = net->parameters()[0].clone();
    for (int i = 0; i < 3; ++i) step();
    EXPECT_TRUE(net->parameters()[0].equal(before));

    optimizer.param_groups()[0].options().set_lr(0.01);
    for (torch::Tensor& parameter : net->parameters()) parameter.set_data(parameter.detach().clone());
    step();
    EXPECT_FALSE(net->parameters()[0].equal(before));
    replicas.CheckReplicas();
  });
}

TEST(QAdam, SavedInEitherPhaseItGoesOnBitForBit) {
  const Squares data;
  for (const int warmup_steps : {3, 100}) {
    std::vector<Sequential> nets = EqualNets(2);
    std::vector<Sequential> resumed = EqualNets(2);
    RunWorld(2, [&](Communicator& world) {
      Sequential& net = nets[world.rank()];
      DataParallel replicas(world, *net, QAdamStrategy(warmup_steps));
      QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01).weight_decay(0.1));
      const auto step = [&data](Sequential& of, QAdam& with) {
        with.zero_grad();
        data.Loss(of).backward();
        with.step();
      };
      for (int i = 0; i < 5; ++i) step(net, optimizer);
      std::stringstream saved_net;
      std::stringstream saved_optimizer;
      torch::save(net, saved_net);
      torch::save(optimizer, saved_optimizer);
      for (int i = 0; i < 5; ++i) step(net, optimizer);

      Sequential& copy = resumed[world.rank()];
      torch::load(copy, saved_net);
      DataParallel copies(world, *copy, QAdamStrategy(warmup_steps));
      QAdam second(copies, copy->parameters());
      if (world.rank() == 0) torch::load(second, saved_optimizer);
      copies.BroadcastOptimizer(second);
      EXPECT_EQ(second.param_groups()[0].options().get_lr(), 0.01);
      EXPECT_EQ(second.frozen(), warmup_steps == 3);
      for (int i = 0; i < 5; ++i) step(copy, second);
      EXPECT_EQ(LargestDifference(*copy, *net), 0);
    });
  }
}

TEST(QAdam, WhatItCannotLoadChangesNothing) {
  const Squares data;
  RunWorld(1, [&](Communicator& world) {
    Sequential net = MakeWideNet();
    net->parameters()[3].requires_grad_(false);
    DataParallel replicas(world, *net, QAdamStrategy(100));
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector{net->parameters()[0], net->parameters()[2]});
    groups.emplace_back(std::vector{net->parameters()[1]});  // without the one that is frozen
    QAdam optimizer(replicas, groups, QAdamOptions(0.01));
    const std::string before = optimizer.SaveState();
    const auto expect_refused = [&](Sequential other, QAdam& into, const std::string& told) {
      DataParallel others(world, *other, QAdamStrategy(100));
      QAdam saved(others, TwoGroups(other, QAdamOptions(0.5), QAdamOptions(0.5)));
      data.Loss(other).backward();
      saved.step();
      std::stringstream file;
      torch::save(saved, file);
      EXPECT_THAT(ErrorOf([&] { torch::load(into, file); }), HasSubstr(told));
      EXPECT_EQ(into.param_groups()[0].options().get_lr(), 0.01);
    };
    expect_refused(MakeWideNet(), optimizer, "a parameter group that has a different size");
    EXPECT_EQ(optimizer.SaveState(), before);

    Sequential whole = MakeWideNet();
    DataParallel wholes(world, *whole, QAdamStrategy(100));
    QAdam of_all(wholes, TwoGroups(whole, QAdamOptions(0.01), QAdamOptions(0.01)));
    expect_refused(Sequential(Linear(20, 32), ReLU(), Linear(32, 1)), of_all, "elements of 0.weight, expected 1280");
  });
}

TEST(QAdam, AnotherOptimizerIsRefused) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(1);
  RunWorld(1, [&](Communicator& world) {
    DataParallel replicas(world, *nets[0], QAdamStrategy(2));
    EXPECT_THAT(ErrorOf([&] { data.Loss(nets[0]).backward(); }), HasSubstr("create a QAdam"));
  });
}

TEST(QAdam, AfterOneHasGoneAnotherMayBeMade) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, QAdamStrategy(2));
    const auto learn = [&](QAdam& optimizer) {
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        data.Loss(net).backward();
        optimizer.step();
      }
    };
    {
      QAdam first(replicas, net->parameters(), QAdamOptions(1e-2));
      learn(first);
    }
    net->zero_grad();
    QAdam second(replicas, net->parameters(), QAdamOptions(1e-3));
    const float before = data.Loss(net).item<float>();
    learn(second);
    EXPECT_LT(data.Loss(net).item<float>(), before);
  });
}

TEST(QAdam, RefusesParametersAndOptionsThatDoNotFit) {
  std::vector<Sequential> nets = EqualNets(2);
  RunWorld(1, [&](Communicator& world) {
    Sequential& net = nets[0];
    DataParallel replicas(world, *net, QAdamStrategy(2));
    std::vector<torch::Tensor> parameters = net->parameters();
    EXPECT_THAT(ErrorOf([&] { QAdam(replicas, parameters, QAdamOptions(-1)); }), HasSubstr("groups[0].lr is -1"));
    EXPECT_THAT(ErrorOf([&] { QAdam(replicas, parameters, QAdamOptions().betas(std::make_tuple(0.9, 1.0))); }),
                HasSubstr("groups[0].beta2 is 1"));
    parameters.pop_back();
    EXPECT_THAT(ErrorOf([&] { QAdam(replicas, parameters); }), HasSubstr("parameter 2.bias is missing"));
    parameters.push_back(nets[1]->parameters()[0]);
    EXPECT_THAT(ErrorOf([&] { QAdam(replicas, parameters); }),
                HasSubstr("parameter 3 of group 0 of QAdam, of shape 64x20, is none of"));

    QAdam optimizer(replicas, net->parameters());
    EXPECT_THAT(ErrorOf([&] { optimizer.step(); }), HasSubstr("no backward that synchronizes"));
    optimizer.add_param_group(torch::optim::OptimizerParamGroup({torch::zeros({1})}));
    EXPECT_THAT(ErrorOf([&] { optimizer.step(); }), HasSubstr("QAdam has 2 groups, was created with 1"));

    DataParallel bytegrad(world, *nets[1], {.strategy = "bytegrad"});
    EXPECT_THAT(ErrorOf([&] { QAdam(bytegrad, nets[1]->parameters()); }), HasSubstr("strategy qadam"));
  });
}

TEST(QAdam, AMistakeOfOneRankIsAnErrorOnAll) {
  std::vector<Sequential> nets = EqualNets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, QAdamStrategy(2));
    std::vector<torch::Tensor> parameters = net->parameters();
    if (world.rank() == 1) parameters.pop_back();
    EXPECT_THAT(ErrorOf([&] { QAdam(replicas, parameters); }),
                HasSubstr("rank 1 has arguments=parameter 2.bias is missing"));
  });
}

struct NetWithNothing : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(x) + nothing.sum(); }

  Linear linear = register_module("linear", Linear(3, 1));
  torch::Tensor nothing = register_parameter("nothing", torch::zeros({0}, torch::kBFloat16));
};

// No bucket is there for the gradients of a type whose parameters have no elements.
TEST(QAdam, ParametersWithoutElementsMayHaveATypeOfTheirOwn) {
  const std::vector<std::shared_ptr<NetWithNothing>> nets = {std::make_shared<NetWithNothing>(),
                                                             std::make_shared<NetWithNothing>()};
  RunWorld(2, [&](Communicator& world) {
    NetWithNothing& net = *nets[world.rank()];
    DataParallel replicas(world, net, QAdamStrategy(2));
    QAdam optimizer(replicas, net.parameters());
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      net.forward(torch::ones({2, 3})).square().mean().backward();
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
}

TEST(QAdam, ItsStepMakesBuffersEqual) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, QAdamStrategy(2));
    QAdam optimizer(replicas, net.parameters());
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      net.forward(data.inputs.narrow(0, 16 * world.rank(), 16)).square().mean().backward();
      EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }), HasSubstr("norm.running_mean"));
      if (step % 2 == 0) {
        optimizer.step();
      } else {
        replicas.Step(optimizer);
      }
      replicas.CheckReplicas();
    }
  });
}

TEST(QAdam, FrozenParametersArePassedOver) {
  const Squares data;
  std::vector<Sequential> nets = EqualNets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    net->parameters()[0].requires_grad_(false);
    const torch::Tensor before = net->parameters()[0].clone();
    DataParallel replicas(world, *net, QAdamStrategy(2));
    QAdam optimizer(replicas, net->parameters());
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      data.Loss(net).backward();
      replicas.Step(optimizer);
    }
    EXPECT_TRUE(net->parameters()[0].equal(before));
    replicas.CheckReplicas();
  });
}

}  // namespace
}  // namespace tutti::nn
