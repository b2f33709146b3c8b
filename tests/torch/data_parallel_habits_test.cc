// What people do around backward() and step(): loading weights, scaling the loss, clipping, changing the strategy
// halfway.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::Sequential;

// Loads weights by torch::load, which gives parameters other memory and other gradient accumulators.
void LoadOtherWeights(Sequential& net, const std::string& saved) {
  std::istringstream file(saved);
  torch::load(net, file);
}

std::string SavedNet() {
  std::ostringstream saved;
  torch::save(MakeNet(), saved);
  return saved.str();
}

TEST(TorchLoad, OfAWrappedModuleKeepsReplicasInStep) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  const std::string saved = SavedNet();
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    if (world.rank() == 0) LoadOtherWeights(net, saved);
    replicas.Broadcast();
    replicas.TakeStatistics();
    Train(net, replicas, optimizer, data, world, 3);
    EXPECT_EQ(replicas.TakeStatistics().steps, 3);
    replicas.CheckReplicas();
  });
}

TEST(TorchLoad, IsAnErrorForAStrategyThatKnowsWhereWeightsLie) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  const std::string saved = SavedNet();
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = "decentralized"});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    LoadOtherWeights(net, saved);
    const torch::Tensor loss = data.Loss(net, world.rank(), world.size());
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("destroy this DataParallel"));
    EXPECT_THAT(ErrorOf([&] { replicas.Flush(); }), HasSubstr("destroy this DataParallel"));
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("destroy this DataParallel"));
  });
}

TEST(TorchLoad, IsAnErrorOnAllRanksWhereOneHasMovedItsWeights) {
  const Data data;
  const std::string saved = SavedNet();
  for (const bool broadcasts : {true, false}) {
    std::vector<Sequential> nets = Nets(2);
    RunWorld(2, [&](Communicator& world) {
      Sequential& net = nets[world.rank()];
      DataParallel replicas(world, *net, {.strategy = "decentralized"});
      const std::string state = replicas.SaveState();
      if (world.rank() == 1) LoadOtherWeights(net, saved);
      const auto start_anew = [&] {
        if (broadcasts) return replicas.Broadcast();
        replicas.LoadState({state, state});
      };
      EXPECT_THAT(ErrorOf(start_anew),
                  AllOf(HasSubstr("was moved to other memory"), HasSubstr(world.rank() == 1 ? "parameter" : "rank 1")));
    });
  }
}

TEST(DataParallel, OnlyOneMayHookAModule) {
  RunWorld(1, [&](Communicator& world) {
    Linear net(4, 2);
    const DataParallel replicas(world, *net);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), AllOf(HasSubstr("weight"), HasSubstr("wrapped twice")));
  });
}

TEST(TorchLoad, LeavesNoRoomForASecondDataParallel) {
  RunWorld(1, [&](Communicator& world) {
    Linear net(4, 2);
    std::stringstream saved;
    torch::save(net, saved);
    {
      const DataParallel replicas(world, *net);
      torch::load(net, saved);
      EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), HasSubstr("The first wrapper must be gone"));
    }
    const DataParallel anew(world, *net);
  });
}

class EveryGradientStrategy : public ::testing::TestWithParam<std::string> {};

// A scaled loss overflows on one rank: all ranks see the overflow and skip the same step.
TEST_P(EveryGradientStrategy, RanksAgreeOnNonFiniteGradients) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    double scale = 1024;
    std::vector<bool> skipped;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      const bool overflows = step == 2 + world.rank() && world.rank() < 2;  // rank 0 in step 2, rank 1 in step 3
      const double factor = overflows ? std::numeric_limits<double>::infinity() : scale;
      (data.Loss(net, world.rank(), world.size()) * factor).backward();
      bool found_inf = false;
      {
        torch::NoGradGuard no_grad;
        for (const torch::Tensor& parameter : net->parameters()) {
          found_inf |= !torch::isfinite(parameter.grad()).all().item<bool>();
          parameter.grad().div_(scale);
        }
      }
      replicas.Step([&] {
        if (!found_inf) optimizer.step();
      });
      skipped.push_back(found_inf);
      if (found_inf) scale /= 2;
    }
    EXPECT_THAT(skipped, ElementsAre(false, false, true, true, false, false));
    replicas.CheckReplicas();
    for (const torch::Tensor& parameter : net->parameters()) {
      EXPECT_TRUE(torch::isfinite(parameter).all().item<bool>());
    }
  });
}

// Clipping sees the synchronized gradients: the norm is the same on all ranks.
TEST_P(EveryGradientStrategy, RanksClipAlike) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  std::vector<double> norms(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      data.Loss(net, world.rank(), world.size()).backward();
      norms[world.rank()] = torch::nn::utils::clip_grad_norm_(net->parameters(), 0.01);
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
  EXPECT_GT(norms[0], 0.01);
  EXPECT_THAT(norms, Each(norms[0]));
}

std::string NameOf(const ::testing::TestParamInfo<std::string>& test) {
  std::string name = test.param;
  for (char& c : name) c = absl::ascii_isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, EveryGradientStrategy,
                         ::testing::Values("gradient_allreduce", "gradient_allreduce:codec=bf16",
                                           "gradient_allreduce:codec=fp16", "bytegrad", "bytegrad:codec=minmax_uint8",
                                           "bytegrad:codec=uint4_block"),
                         NameOf);

// Each of the optimizers has a part of the parameters, and makes its step after one backward().
TEST(DataParallel, TwoOptimizersUseGradientsThatTheUserReplaces) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    const std::vector<torch::Tensor> parameters = net->parameters();
    torch::optim::SGD first(std::vector<torch::Tensor>{parameters[0]}, 0.1);
    torch::optim::SGD second(std::vector<torch::Tensor>(parameters.begin() + 1, parameters.end()), 0.1);
    const auto replace_gradients = [&] {
      for (const torch::Tensor& parameter : parameters) parameter.mutable_grad() = torch::ones_like(parameter);
    };
    for (int step = 0; step < 2; ++step) {
      data.Loss(net, world.rank(), world.size()).backward();
      replace_gradients();
      replicas.Step(first);
      replicas.Step(second);
    }
    EXPECT_THAT(ErrorOf([&] { replicas.Step(first); }), HasSubstr("was not made by a backward()"));
    EXPECT_THAT(ErrorOf([&] { replicas.Step(second); }), HasSubstr("was not made by a backward()"));
    replicas.CheckReplicas();
  });
}

// Calls `change` between a forward and its backward(); returns the error of this backward().
std::string ErrorOfLateBackward(Sequential& net, const Data& data, Communicator& world,
                                const std::function<void()>& change) {
  const torch::Tensor early = data.Loss(net, world.rank(), world.size());
  data.Loss(net, world.rank(), world.size()).backward();
  change();
  std::string error = ErrorOf([&] { early.backward(); });
  net->zero_grad();
  return error;
}

class EveryExchangeOfWeights : public ::testing::TestWithParam<const char*> {};

// The gradient would be that of no weights at all: of the activations of the old weights, and of the new weights.
TEST_P(EveryExchangeOfWeights, ABackwardThroughWeightsOfBeforeAnExchangeIsAnError) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD of_first_layer(net[0]->as<Linear>()->parameters(), 0.1);
    const auto modified = HasSubstr("modified by an inplace operation");
    EXPECT_THAT(ErrorOfLateBackward(net, data, world, [&] { replicas.Step(of_first_layer); }), modified);
    EXPECT_THAT(ErrorOfLateBackward(net, data, world, [&] { replicas.Flush(); }), modified);
    EXPECT_THAT(ErrorOfLateBackward(net, data, world, [&] { replicas.LoadState({replicas.SaveState()}); }), modified);
    EXPECT_THAT(ErrorOfLateBackward(net, data, world, [&] { replicas.Broadcast(); }), modified);
    torch::Tensor before;
    replicas.Step([&] { before = data.Loss(net, world.rank(), world.size()); });
    EXPECT_THAT(ErrorOf([&] { before.backward(); }), modified);
    net->zero_grad();
    replicas.Step([&] {  // one step of the strategy, with a forward of its own
      before = data.Loss(net, world.rank(), world.size());
      data.Loss(net, world.rank(), world.size()).backward();
      of_first_layer.step();
      before.backward();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Weights, EveryExchangeOfWeights,
                         ::testing::Values("decentralized", "low_precision_decentralized", "async:sync_interval_ms=1"));

TEST(Strategies, ThatExchangeGradientsWriteWeightsInABroadcastOnly) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD of_first_layer(net[0]->as<Linear>()->parameters(), 0.1);
    EXPECT_EQ(ErrorOfLateBackward(net, data, world, [&] { replicas.Step(of_first_layer); }), "");
    EXPECT_EQ(ErrorOfLateBackward(net, data, world, [&] { replicas.Flush(); }), "");
    EXPECT_THAT(ErrorOfLateBackward(net, data, world, [&] { replicas.Broadcast(); }),
                HasSubstr("modified by an inplace operation"));
  });
}

// One model and one optimizer are trained with one strategy after the other.
TEST(Strategies, CanChangeInMidRun) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  const std::vector<std::string> strategies = {"gradient_allreduce",
                                               "bytegrad",
                                               "decentralized",
                                               "low_precision_decentralized",
                                               "async:sync_interval_ms=1",
                                               "gradient_allreduce:codec=bf16"};
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    double first = 0;
    for (const std::string& before : strategies) {
      for (const std::string& after : strategies) {
        for (const std::string& strategy : {before, after}) {
          DataParallel replicas(world, *net, {.strategy = strategy});
          // After steps with gradients of their own the ranks' optimizers differ.
          replicas.BroadcastOptimizer(optimizer);
          if (first == 0) first = data.Loss(net, 0, 1).item<double>();
          Train(net, replicas, optimizer, data, world, 2);
          replicas.Flush();
          replicas.CheckReplicas();
        }
      }
    }
    EXPECT_LT(data.Loss(net, 0, 1).item<double>(), 0.9 * first);
  });
}

TEST(Strategies, CanChangeToQAdamAndBack) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    for (int turn = 0; turn < 2; ++turn) {
      {
        DataParallel replicas(world, *net, {.strategy = "decentralized"});
        torch::optim::SGD optimizer(net->parameters(), 0.01);
        Train(net, replicas, optimizer, data, world, 2);
        replicas.Flush();
      }
      DataParallel replicas(world, *net, {.strategy = "qadam:warmup_steps=2"});
      QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01));
      Train(net, replicas, optimizer, data, world, 4);
      EXPECT_TRUE(optimizer.frozen());
      replicas.CheckReplicas();
    }
  });
}

}  // namespace
}  // namespace tutti::nn
