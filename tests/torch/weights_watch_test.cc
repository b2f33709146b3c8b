// Weights that change outside of Step, under strategies that exchange weights.
#include "tutti/torch/weights_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Sequential;

class EveryWeightStrategy : public ::testing::TestWithParam<std::string> {};

// torch's SGD writes through .data(), which torch does not count as a change.
TEST_P(EveryWeightStrategy, SeesAPlainStepOfSGD) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    optimizer.zero_grad();
    data.Loss(net, world.rank(), 2).backward();
    optimizer.step();
    const auto told = AllOf(HasSubstr("call replicas.Step(optimizer)"), HasSubstr("parameter 0."),
                            HasSubstr("rank " + std::to_string(world.rank()) + " in step 2"));
    EXPECT_THAT(ErrorOf([&] { data.Loss(net, world.rank(), 2).backward(); }), told);
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), told);
    replicas.Broadcast();
    Train(net, replicas, optimizer, data, world, 2);
  });
}

TEST_P(EveryWeightStrategy, SeesAWriteOfASingleElement) {
  std::vector<Sequential> nets = Nets(1);
  RunWorld(1, [&](Communicator& world) {
    Sequential& net = nets[0];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    const torch::Tensor loss = Data().Loss(net, 0, 1);
    {
      const torch::NoGradGuard no_grad;
      net->parameters()[2].view(-1)[1] += 1;  // an element that is not compared
    }
    EXPECT_THAT(ErrorOf([&] { Data().Loss(net, 0, 1).backward(); }), HasSubstr("parameter 2.weight"));
  });
}

// An optimizer that calls backward() again and again while it changes the weights.
TEST_P(EveryWeightStrategy, TakesOptimizersWithClosures) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::LBFGS optimizer(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
    const torch::Tensor before = WeightsOf(net);
    for (int step = 0; step < 3; ++step) {
      replicas.Step([&] {
        optimizer.step([&] {
          optimizer.zero_grad();
          const torch::Tensor loss = data.Loss(net, world.rank(), 2);
          loss.backward();
          return loss;
        });
      });
    }
    replicas.Flush();
    replicas.CheckReplicas();
    EXPECT_FALSE(WeightsOf(net).equal(before));
  });
}

// Averaged weights replace those of training for an evaluation; then the weights of training come back, bit for bit.
TEST_P(EveryWeightStrategy, TakesWeightsThatAreSwappedForAnEvaluation) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    torch::Tensor averaged = WeightsOf(net);
    for (int step = 0; step < 4; ++step) {
      Train(net, replicas, optimizer, data, world, 1);
      averaged = 0.9 * averaged + 0.1 * WeightsOf(net);
      const torch::Tensor own = WeightsOf(net);
      SetWeights(net, averaged);
      data.Loss(net, 0, 1).item<double>();
      SetWeights(net, own);
    }
    SetWeights(net, averaged);  // the weights of training do not come back
    EXPECT_THAT(ErrorOf([&] { data.Loss(net, world.rank(), 2).backward(); }), HasSubstr("weights were changed"));
  });
}

TEST_P(EveryWeightStrategy, AnExceptionOfTheOptimizerMayBeFollowedByAnotherStep) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 1);
    EXPECT_THROW(replicas.Step([&] {
      optimizer.step();
      throw std::runtime_error("the scheduler");
    }),
                 std::runtime_error);
    Train(net, replicas, optimizer, data, world, 2);
    replicas.Flush();
    replicas.CheckReplicas();
  });
}

// An update that writes weights by set_data, as torch::load and to() do, gives the memory back that the strategy was
// told of.
TEST_P(EveryWeightStrategy, RefusesAStepThatMovesWeights) {
  const Data data;
  for (const bool throws : {false, true}) {
    std::vector<Sequential> nets = Nets(2);
    RunWorld(2, [&](Communicator& world) {
      Sequential& net = nets[world.rank()];
      DataParallel replicas(world, *net, {.strategy = GetParam()});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      Train(net, replicas, optimizer, data, world, 2);
      optimizer.zero_grad();
      data.Loss(net, world.rank(), 2).backward();
      const auto step = [&] {
        replicas.Step([&] {
          const torch::NoGradGuard no_grad;
          for (torch::Tensor parameter : net->parameters()) parameter.set_data(parameter - 0.1 * parameter.grad());
          if (throws) throw std::runtime_error("the scheduler");
        });
      };
      const auto told = AllOf(HasSubstr("parameter 0."), HasSubstr("was moved to other memory"),
                              HasSubstr("rank " + std::to_string(world.rank()) + " in step 2"));
      if (throws) {
        EXPECT_THROW(step(), std::runtime_error);
      } else {
        EXPECT_THAT(ErrorOf(step), told);
      }
      EXPECT_THAT(ErrorOf([&] { data.Loss(net, world.rank(), 2).backward(); }), told);
      EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), told);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryWeightStrategy,
                         ::testing::Values("decentralized", "low_precision_decentralized", "async:sync_interval_ms=1"),
                         [](const ::testing::TestParamInfo<std::string>& test) {
                           return test.param.substr(0, test.param.find(':'));
                         });

}  // namespace
}  // namespace tutti::nn
