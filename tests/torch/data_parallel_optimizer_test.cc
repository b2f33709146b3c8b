// BroadcastOptimizer copies the state of an optimizer from rank 0 to all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::optim::OptimizerParamGroup;

// A class of the user's own, as torch asks for: save() and load() are the empty ones of torch::optim::Optimizer.
struct Own : Optimizer {
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {};
  struct State : torch::optim::OptimizerCloneableParamState<State> {};

  explicit Own(const std::vector<torch::Tensor>& parameters) : Optimizer(parameters, std::make_unique<Options>()) {
    for (const torch::Tensor& parameter : parameters) {
      state()[parameter.unsafeGetTensorImpl()] = std::make_unique<State>();
    }
  }
  torch::Tensor step(LossClosure /*closure*/ = nullptr) override { return {}; }
};

// As Own, with a load() that fails.
struct FailsToLoad : Own {
  using Own::Own;
  void save(torch::serialize::OutputArchive& archive) const override { archive.write("a", torch::ones({1})); }
  void load(torch::serialize::InputArchive& /*archive*/) override { throw std::runtime_error("cannot be read"); }
};

TEST(BroadcastOptimizer, LeavesNoStateThatRank0Lacks) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    torch::optim::Adam optimizer(net.parameters(), 0.1);
    // Only rank 1 has used the right branch.
    torch::Tensor loss = net.left->forward(torch::ones({1, 4})).sum();
    if (world.rank() == 1) loss = loss + net.right->forward(torch::ones({1, 4})).sum();
    loss.backward();
    optimizer.step();
    EXPECT_EQ(optimizer.state().size(), world.rank() == 0 ? 2 : 4);

    DataParallel replicas(world, net);
    replicas.BroadcastOptimizer(optimizer);
    EXPECT_EQ(optimizer.state().size(), 2);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      (net.left->forward(torch::ones({1, 4})) + net.right->forward(torch::ones({1, 4}))).sum().backward();
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
}

TEST(BroadcastOptimizer, RefusesOptimizersThatDifferOnAllRanks) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    torch::optim::Adam adam(net->parameters(), 0.1);
    torch::optim::SGD two_groups({OptimizerParamGroup({net->weight}), OptimizerParamGroup({net->bias})},
                                 torch::optim::SGDOptions(0.1));
    const auto error = [&](Optimizer& of_rank_1) {
      Optimizer& mine = world.rank() == 0 ? sgd : of_rank_1;
      return ErrorOf([&] { replicas.BroadcastOptimizer(mine); });
    };
    EXPECT_THAT(error(adam),
                HasSubstr("rank 1 has class of the optimizer=torch::optim::Adam, rank 0 has torch::optim::SGD"));
    EXPECT_THAT(error(two_groups),
                HasSubstr("rank 1 has parameters in each group of the optimizer=1, 1, rank 0 has 2"));
    EXPECT_EQ(error(sgd), "");
  });
}

TEST(BroadcastOptimizer, KeepsTheStateOfAClassThatCannotBeSaved) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    Own optimizer(net->parameters());
    EXPECT_THAT(ErrorOf([&] { replicas.BroadcastOptimizer(optimizer); }),
                AllOf(HasSubstr("Own"), HasSubstr("implements neither save() nor load()")));
    EXPECT_EQ(optimizer.state().size(), 2);
  });
}

TEST(BroadcastOptimizer, TellsAllRanksWhatFailsToLoadAndKeepsTheState) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    FailsToLoad optimizer(net->parameters());
    EXPECT_THAT(ErrorOf([&] { replicas.BroadcastOptimizer(optimizer); }), HasSubstr("cannot be read"));
    EXPECT_EQ(optimizer.state().size(), 2);
  });
}

}  // namespace
}  // namespace tutti::nn
