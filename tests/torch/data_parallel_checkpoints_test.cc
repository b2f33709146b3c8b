// Training that is saved and resumed as docs/checkpoints.md says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <sstream>
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

// Trains, saves a checkpoint after the second step, and at the end goes back to it; returns the weights of this rank
// after every step.
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

// Nets with buffers, for three ranks.
std::vector<Sequential> ThreeNormalized() {
  std::vector<Sequential> nets = Nets(3);
  for (Sequential& net : nets) net->push_back(torch::nn::BatchNorm1d(3));
  return nets;
}

// What one rank of a job has saved.
struct Saved {
  std::stringstream net;
  std::stringstream optimizer;
  std::string state;
};

TEST(Checkpoints, ANewJobGoesOnFromEveryRanksOwnWeightsBitForBit) {
  const Data data;
  for (const std::string strategy : {"bytegrad:error_feedback=true", "decentralized",
                                     "decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    std::vector<Sequential> nets = ThreeNormalized();
    std::vector<Sequential> new_nets = ThreeNormalized();
    std::vector<Sequential> loaded = ThreeNormalized();
    std::vector<Saved> saved(3);
    RunWorld(3, [&](Communicator& world) {
      Sequential& net = nets[world.rank()];
      DataParallel replicas(world, *net, {.strategy = strategy});
      torch::optim::Adam optimizer(net->parameters(), 0.01);
      Train(net, replicas, optimizer, data, world, 4);
      torch::save(net, saved[world.rank()].net);
      torch::save(optimizer, saved[world.rank()].optimizer);
      saved[world.rank()].state = replicas.SaveState();
      Train(net, replicas, optimizer, data, world, 4);
    });
    RunWorld(3, [&](Communicator& world) {
      Sequential& net = new_nets[world.rank()];
      Sequential& own = loaded[world.rank()];
      auto& [net_file, optimizer_file, state] = saved[world.rank()];
      // [own_weights]
      DataParallel replicas(world, *net, {.strategy = strategy});  // all ranks have the weights of rank 0
      torch::load(own, net_file);                                  // another net of the same shape
      {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < net->parameters().size(); ++i) {
          net->parameters()[i].copy_(own->parameters()[i]);  // in place
        }
        for (std::size_t i = 0; i < net->buffers().size(); ++i) net->buffers()[i].copy_(own->buffers()[i]);
      }
      torch::optim::Adam optimizer(net->parameters());
      torch::load(optimizer, optimizer_file);
      replicas.LoadState({state});  // last: the next exchange begins from the weights of now
      // [own_weights]
      Train(net, replicas, optimizer, data, world, 4);
      EXPECT_TRUE(WeightsOf(net).equal(WeightsOf(nets[world.rank()]))) << strategy;
      for (std::size_t i = 0; i < net->buffers().size(); ++i) {
        EXPECT_TRUE(net->buffers()[i].equal(nets[world.rank()]->buffers()[i])) << strategy << ", buffer " << i;
      }
    });
  }
}

TEST(Checkpoints, WeightsThatAreRestoredWithoutLoadStateAreAnError) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = "decentralized"});
    const std::string state = replicas.SaveState();
    SetWeights(net, WeightsOf(net) + world.rank());
    EXPECT_THAT(ErrorOf([&] { data.Loss(net, world.rank(), 2).backward(); }), HasSubstr("replicas.LoadState()"));
    replicas.LoadState({state});
    data.Loss(net, world.rank(), 2).backward();
  });
}

// What was saved would be empty, and nobody would hear of it before it is loaded.
TEST(Checkpoints, AreNotSavedAfterAnExchangeThatFailed) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  std::barrier trained(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = "bytegrad:error_feedback=true"});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    EXPECT_NE(replicas.SaveState(), "");
    trained.arrive_and_wait();
    world.Abort(absl::AbortedError("enough"));
    EXPECT_THAT(ErrorOf([&] { data.Loss(net, world.rank(), 2).backward(); }), HasSubstr("enough"));
    EXPECT_THAT(ErrorOf([&] { (void)replicas.SaveState(); }),
                AllOf(HasSubstr("the state cannot be saved: "), HasSubstr("enough")));
  });
}

// One rank alone has a wrong checkpoint.
TEST(Checkpoints, AreRefusedByAllRanksWhenOneHasAWrongOne) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = "decentralized"});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const std::string state = replicas.SaveState();
    EXPECT_THAT(ErrorOf([&] { replicas.LoadState({world.rank() == 0 ? state : "torn"}); }),
                HasSubstr("states[0] was not saved by"));
    Train(net, replicas, optimizer, data, world, 2);  // training goes on as if nothing had been loaded
    replicas.LoadState({state});
    Train(net, replicas, optimizer, data, world, 2);
  });
}

}  // namespace
}  // namespace tutti::nn
