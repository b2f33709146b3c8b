// What people do around backward() and step(): loading weights, scaling the loss, clipping, BatchNorm, changing the
// strategy halfway.
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
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

Sequential MakeNet() { return Sequential(Linear(6, 16), ReLU(), Linear(16, 3)); }

// Made beforehand, since torch's random numbers belong to the process.
std::vector<Sequential> Nets(int size) {
  torch::set_num_threads(1);
  std::vector<Sequential> nets;
  for (Rank rank = 0; rank < size; ++rank) nets.push_back(MakeNet());
  return nets;
}

struct Data {
  torch::Tensor inputs = (torch::manual_seed(7), torch::randn({32, 6}));
  torch::Tensor targets = torch::randn({32, 3});

  torch::Tensor Loss(Sequential& net, Rank rank, int size) const {
    const std::int64_t n = inputs.size(0) / size;
    return torch::mse_loss(net->forward(inputs.narrow(0, rank * n, n)), targets.narrow(0, rank * n, n));
  }
};

void Train(Sequential& net, DataParallel& replicas, torch::optim::Optimizer& optimizer, const Data& data,
           Communicator& world, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    data.Loss(net, world.rank(), world.size()).backward();
    replicas.Step(optimizer);
  }
}

// torch::load gives parameters other memory and other gradient accumulators.
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
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("create another DataParallel"));
    EXPECT_THAT(ErrorOf([&] { replicas.Flush(); }), HasSubstr("create another DataParallel"));
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("create another DataParallel"));
  });
}

TEST(DataParallel, OnlyOneMayHookAModule) {
  RunWorld(1, [&](Communicator& world) {
    Linear net(4, 2);
    const DataParallel replicas(world, *net);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), AllOf(HasSubstr("weight"), HasSubstr("wrapped twice")));
  });
}

class EveryGradientStrategy : public ::testing::TestWithParam<std::string> {};

// A scaled loss overflows on one rank: all of them see it and skip the same step.
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

struct Normalized : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(norm->forward(x)); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
  Linear linear = register_module("linear", Linear(6, 3));
};

// The running means after one step of two ranks, each with data of its own.
std::vector<torch::Tensor> RunningMeans(Buffers buffers, const Data& data) {
  torch::set_num_threads(1);
  std::vector<std::shared_ptr<Normalized>> nets = {std::make_shared<Normalized>(), std::make_shared<Normalized>()};
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, {.buffers = buffers});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    net.forward(data.inputs.narrow(0, 16 * world.rank(), 16)).square().mean().backward();
    replicas.Step(optimizer);
  });
  return {nets[0]->norm->running_mean, nets[1]->norm->running_mean};
}

TEST(BatchNorm, StatisticsAreRank0sOrTheAverageOrLeftAlone) {
  const Data data;
  const std::vector<torch::Tensor> left = RunningMeans(Buffers::kLeave, data);
  EXPECT_TRUE(left[0].allclose(0.1 * data.inputs.narrow(0, 0, 16).mean(0)));
  EXPECT_TRUE(left[1].allclose(0.1 * data.inputs.narrow(0, 16, 16).mean(0)));
  const std::vector<torch::Tensor> broadcast = RunningMeans(Buffers::kBroadcast, data);
  EXPECT_TRUE(broadcast[0].equal(left[0]));
  EXPECT_TRUE(broadcast[1].equal(left[0]));
  const std::vector<torch::Tensor> averaged = RunningMeans(Buffers::kAverage, data);
  EXPECT_TRUE(averaged[0].allclose((left[0] + left[1]) / 2));
  EXPECT_TRUE(averaged[1].equal(averaged[0]));
}

torch::Tensor WeightsOf(const Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : net->parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

void SetWeights(Sequential& net, const torch::Tensor& weights) {
  torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (torch::Tensor parameter : net->parameters()) {
    parameter.copy_(weights.narrow(0, begin, parameter.numel()).view_as(parameter));
    begin += parameter.numel();
  }
}

// Weights of this rank after every step; a checkpoint is made after the second and gone back to at the end.
std::vector<torch::Tensor> TrainAndGoBack(Sequential& net, const std::string& strategy, const Data& data,
                                          Communicator& world, bool saves) {
  constexpr int kSteps = 5;
  DataParallel replicas(world, *net, {.strategy = strategy});
  torch::optim::SGD optimizer(net->parameters(), 0.05);
  std::vector<torch::Tensor> history;
  std::string state;
  const auto train = [&] {
    Train(net, replicas, optimizer, data, world, 1);
    history.push_back(WeightsOf(net));
  };
  for (int step = 0; step < kSteps; ++step) {
    train();
    if (!saves || step != 1) continue;
    state = replicas.SaveState();
  }
  if (!saves) return history;
  SetWeights(net, history[1]);
  replicas.LoadState({state});
  for (int step = 2; step < kSteps; ++step) train();
  return history;
}

TEST(Checkpoints, DisturbNoTrainingAndCanBeGoneBackTo) {
  const Data data;
  for (const std::string strategy : {"bytegrad:error_feedback=true", "decentralized",
                                     "decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    std::vector<Sequential> nets = Nets(3);
    std::vector<Sequential> saving = Nets(3);
    RunWorld(3, [&](Communicator& world) {
      const Rank rank = world.rank();
      SetWeights(saving[rank], WeightsOf(nets[rank]));
      const std::vector<torch::Tensor> expected = TrainAndGoBack(nets[rank], strategy, data, world, /*saves=*/false);
      const std::vector<torch::Tensor> seen = TrainAndGoBack(saving[rank], strategy, data, world, /*saves=*/true);
      ASSERT_EQ(seen.size(), expected.size() + 3);
      for (std::size_t i = 0; i < seen.size(); ++i) {
        EXPECT_TRUE(seen[i].equal(expected[i < expected.size() ? i : i - 3])) << strategy << ", weights " << i;
      }
    });
  }
}

// One model, one optimizer, one strategy after the other.
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
          replicas.BroadcastOptimizer(optimizer);  // where every rank used its own gradients they differ
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
