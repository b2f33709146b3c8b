// Ranks that do not make the same steps of the same models get an error, and never values of another step or model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::nn::Linear;
using torch::nn::Sequential;

using Mapping = CommunicatorOptions::Mapping;

class MismatchedSteps : public ::testing::TestWithParam<Mapping> {
 protected:
  WorldOptions Options() const {
    WorldOptions options;
    options.communicator.mapping = GetParam();
    return options;
  }
};

// Two models of one shape, whose losses are added in another order on each rank: autograd then runs their backwards in
// another order too.
TEST_P(MismatchedSteps, TwinModelsWhoseGraphsAreBuiltInAnotherOrder) {
  std::vector<std::string> errors(2);
  RunWorld(2, Options(), [&](Communicator& world) {
    Linear first(4, 2);
    Linear second(4, 2);
    DataParallel first_replicas(world, *first);
    DataParallel second_replicas(world, *second);
    const torch::Tensor x = torch::ones({1, 4});
    const auto loss = [&](Linear& critic, double factor) { return factor * critic->forward(x).sum(); };
    errors[world.rank()] = ErrorOf([&] {
      if (world.rank() == 0) {
        const torch::Tensor a = loss(first, 1);
        const torch::Tensor b = loss(second, 100);
        (a + b).backward();
      } else {
        const torch::Tensor b = loss(second, 100);
        const torch::Tensor a = loss(first, 1);
        (a + b).backward();
      }
    });
    if (errors[world.rank()].empty()) {  // the orders happened to be equal: then the gradients are right
      EXPECT_TRUE(first->weight.grad().equal(torch::ones({2, 4})));
      EXPECT_TRUE(second->weight.grad().equal(torch::full({2, 4}, 100)));
    }
  });
  EXPECT_EQ(errors[0].empty(), errors[1].empty());
}

// One backward trains an encoder and a head, of which rank 1 leaves out a part: there the head's gradients leave after
// the encoder's.
TEST_P(MismatchedSteps, ModelsOfOneBackwardWithACommunicatorEach) {
  RunWorld(2, Options(), [&](Communicator& world) {
    const std::unique_ptr<Communicator> group = *world.Split(0, world.rank());
    Linear encoder(torch::nn::LinearOptions(4, 4).bias(false));
    Branches head;
    torch::nn::init::ones_(encoder->weight);
    torch::nn::init::ones_(head.left->weight);
    torch::nn::init::ones_(head.right->weight);
    const DataParallel of_encoder(world, *encoder);
    const DataParallel of_head(*group, head, {.allow_unused = true});
    const torch::Tensor features = encoder->forward(torch::ones({1, 4}));
    torch::Tensor loss = head.left->forward(features).sum();
    if (world.rank() == 0) loss = loss + head.right->forward(features).sum();
    loss.backward();
    EXPECT_TRUE(head.left->weight.grad().equal(torch::full({2, 4}, 4.0)));
    EXPECT_TRUE(head.right->weight.grad().equal(torch::full({2, 4}, 2.0)));
    EXPECT_TRUE(encoder->weight.grad().equal(torch::full({4, 4}, 3.0)));
  });
}

// The backwards of two models are called in another order on each rank.
TEST_P(MismatchedSteps, TwinModelsInAnotherOrder) {
  RunWorld(2, Options(), [&](Communicator& world) {
    Linear nets[2] = {Linear(4, 2), Linear(4, 2)};
    DataParallel first(world, *nets[0]);
    DataParallel second(world, *nets[1]);
    const std::string error = ErrorOf([&] {
      for (int i : {world.rank(), 1 - world.rank()}) nets[i]->forward(torch::ones({1, 4})).sum().backward();
    });
    EXPECT_THAT(error, HasSubstr("the ranks train their models in different orders"));
  });
}

TEST_P(MismatchedSteps, ARankThatSkipsABatch) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, Options(), [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    const std::string error = ErrorOf([&] {
      if (world.rank() == 1) replicas.Step([] {});  // rank 1 makes no backward in this step
      Train(net, replicas, optimizer, data, world, 1);
    });
    EXPECT_THAT(error, HasSubstr("in step"));
  });
}

// A rank repeats a backward that has ended on its peer.
TEST_P(MismatchedSteps, ARankThatRepeatsABackward) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, Options(), [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const std::string error = ErrorOf([&] {
      for (int step = 0; step < 3; ++step) {
        if (world.rank() == 1 && step == 1) data.Loss(net, 1, 2).backward();
        Train(net, replicas, optimizer, data, world, 1);
      }
      replicas.CheckReplicas();
    });
    EXPECT_THAT(error, Not(HasSubstr("replicas differ")));
    EXPECT_NE(error, "");
  });
}

TEST_P(MismatchedSteps, ARankThatLeavesEarly) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  RunWorld(3, Options(), [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    if (world.rank() == 2) return;  // this rank has no more data
    EXPECT_THAT(ErrorOf([&] { Train(net, replicas, optimizer, data, world, 1); }),
                AnyOf(HasSubstr("rank 2"), HasSubstr("rank 1")));
  });
}

// A parameter that is not trained is overwritten by rank 0's, byte by byte.
TEST(FrozenParameters, OfAnotherTypeOrShapeAreAnErrorOnAllRanks) {
  const std::vector<std::vector<torch::Tensor>> pairs = {
      {torch::ones({3}, torch::kFloat16), torch::ones({3}, torch::kBFloat16)},
      {torch::ones({2, 3}), torch::ones({3, 2})},
  };
  for (const std::vector<torch::Tensor>& pair : pairs) {
    RunWorld(2, [&](Communicator& world) {
      torch::nn::Linear net(2, 2);
      net->register_parameter("frozen", pair[world.rank()], /*requires_grad=*/false);
      EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), HasSubstr("rank 1 has parameter frozen="));
      EXPECT_TRUE(pair[world.rank()].eq(1).all().item<bool>());
    });
  }
}

TEST(FrozenParameters, ThatCannotBeWrittenAreAnErrorOnAllRanks) {
  const std::vector<torch::Tensor> cannot = {torch::ones({1}).expand({5}), torch::ones({2, 2}).to_sparse(),
                                             torch::ones({2}, torch::kMeta)};
  for (const torch::Tensor& tensor : cannot) {
    RunWorld(2, [&](Communicator& world) {
      torch::nn::Linear net(2, 2);
      net->register_parameter("frozen", world.rank() == 1 ? tensor : torch::ones(tensor.sizes()),
                              /*requires_grad=*/false);
      EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), HasSubstr("parameter frozen"));
    });
  }
}

TEST_P(MismatchedSteps, DifferentCallsAreNamed) {
  RunWorld(2, Options(), [](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    EXPECT_THAT(ErrorOf([&] { world.rank() == 0 ? replicas.CheckReplicas() : replicas.Broadcast(); }),
                HasSubstr("the ranks make different calls: rank 1 is in 'Broadcast', rank 0 in 'CheckReplicas'"));
    replicas.CheckReplicas();
  });
}

INSTANTIATE_TEST_SUITE_P(All, MismatchedSteps, ::testing::Values(Mapping::kAuto, Mapping::kNever),
                         [](const auto& test) { return test.param == Mapping::kAuto ? "Mapped" : "Messages"; });

}  // namespace
}  // namespace tutti::nn
