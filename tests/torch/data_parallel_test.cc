// The adapter on worlds of threads: replicas follow what one process with all the data would do.
#include "tutti/torch/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/small_net.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::Flatten;
using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

constexpr int kGlobalBatch = 16;

struct Images {
  // The loss of the part of the data that `rank` has; parts are equally large.
  torch::Tensor Loss(Sequential& net, Rank rank = 0, int size = 1) const {
    const std::int64_t n = kGlobalBatch / size;
    return torch::nn::functional::cross_entropy(net->forward(inputs.narrow(0, rank * n, n)),
                                                labels.narrow(0, rank * n, n));
  }

  torch::Tensor inputs = (torch::manual_seed(1), torch::randn({kGlobalBatch, 3, 6, 6}));
  torch::Tensor labels = torch::randint(0, 4, {kGlobalBatch});
};

Sequential MakeConvolutions() {
  return Sequential(Conv2d(Conv2dOptions(3, 5, 3).padding(1)), ReLU(), Flatten(), Linear(5 * 36, 20), ReLU(),
                    Linear(20, 4));
}

// A net for each rank: made beforehand, since torch's random numbers belong to the process.
std::vector<Sequential> NetsWithDifferentWeights(int size) {
  torch::set_num_threads(1);
  std::vector<Sequential> nets;
  for (Rank rank = 0; rank < size; ++rank) nets.push_back(MakeConvolutions());
  return nets;
}

DataParallelOptions SmallBuckets(std::string strategy = "gradient_allreduce") {
  return {.strategy = std::move(strategy), .bucket_bytes = 4096, .first_bucket_bytes = 512};
}

void CopyWeights(torch::nn::Module& to, torch::nn::Module& from) {
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.parameters().size(); ++i) to.parameters()[i].copy_(from.parameters()[i]);
}

using ZeroGrad = std::function<void(Sequential&, torch::optim::Optimizer&)>;
struct WayToZero {
  std::string name;
  ZeroGrad zero;
};

class EveryZeroGrad : public ::testing::TestWithParam<WayToZero> {};

TEST_P(EveryZeroGrad, FourRanksFollowOneWithTheSameGlobalBatch) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(4);
  Sequential alone = MakeConvolutions();
  CopyWeights(*alone, *nets[0]);
  const auto train = [&](Sequential& net, Rank rank, int size) {
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (int step = 0; step < 50; ++step) {
      GetParam().zero(net, optimizer);
      data.Loss(net, rank, size).backward();
      optimizer.step();
    }
  };
  train(alone, 0, 1);
  RunWorld(4, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, SmallBuckets());
    train(net, world.rank(), world.size());
    replicas.CheckReplicas();
    EXPECT_EQ(replicas.TakeStatistics().steps, 50);
  });
  EXPECT_LE(LargestDifference(*alone, *nets[3]), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryZeroGrad,
    ::testing::Values(WayToZero{"OptimizerToNone", [](auto&, auto& optimizer) { optimizer.zero_grad(); }},
                      WayToZero{"OptimizerInPlace", [](auto&, auto& optimizer) { optimizer.zero_grad(false); }},
                      WayToZero{"ModuleToNone", [](auto& net, auto&) { net->zero_grad(); }},
                      WayToZero{"ModuleInPlace", [](auto& net, auto&) { net->zero_grad(false); }}),
    [](const ::testing::TestParamInfo<WayToZero>& test) { return test.param.name; });

TEST(DataParallel, ByteGradKeepsReplicasEqualAndLearns) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, SmallBuckets("bytegrad:block=256"));
    EXPECT_THAT(replicas.strategy(), HasSubstr("codec=uint8_block,block=256"));
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    const double before = data.Loss(net).item<double>();
    for (int step = 0; step < 30; ++step) {
      optimizer.zero_grad();
      data.Loss(net, world.rank(), world.size()).backward();
      optimizer.step();
    }
    replicas.CheckReplicas();
    EXPECT_LT(data.Loss(net).item<double>(), 0.9 * before);
  });
}

TEST(DataParallel, GradientsLiveInOnePlace) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, SmallBuckets());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    std::vector<void*> places;
    for (const bool set_to_none : {true, false, true, true, false}) {
      optimizer.zero_grad(set_to_none);
      data.Loss(net, world.rank(), world.size()).backward();
      std::vector<void*> now;
      for (const torch::Tensor& parameter : net->parameters()) now.push_back(parameter.grad().data_ptr());
      if (places.empty()) places = now;
      EXPECT_EQ(now, places);
    }
  });
}

TEST(DataParallel, NoSyncAccumulatesToTheGradientOfTheBigBatch) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, SmallBuckets("gradient_allreduce:average=false"));
    for (const bool in_place : {false, true}) {
      // The data is cut into quarters, of which each rank takes two; the reference takes the whole.
      net->zero_grad(!in_place);
      {
        const DataParallel::NoSync no_sync(replicas);
        data.Loss(net, 2 * world.rank(), 4).backward();
      }
      data.Loss(net, 2 * world.rank() + 1, 4).backward();
      EXPECT_EQ(replicas.TakeStatistics().steps, 1);
      const std::vector<torch::Tensor> whole = torch::autograd::grad({4 * data.Loss(net)}, net->parameters());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        EXPECT_TRUE(net->parameters()[i].grad().allclose(whole[i], 1e-4, 1e-5)) << "parameter " << i;
      }
    }
  });
}

// Two branches, of which a step may use one.
TEST(DataParallel, AnUnusedParameterIsNamed) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    // The constructor may throw, too: a rank may still be in it when it hears that the other rank has failed in
    // backward.
    const std::string error = ErrorOf([&] {
      DataParallel replicas(world, net);
      net.left->forward(torch::ones({1, 4})).sum().backward();
    });
    EXPECT_THAT(error, AllOf(HasSubstr("right.weight, right.bias"), HasSubstr("allow_unused")));
  });
}

TEST(DataParallel, UnusedParametersContributeZeroWhenAllowed) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    DataParallelOptions options;
    options.allow_unused = true;
    DataParallel replicas(world, net, options);
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      (world.rank() == 0 ? net.left : net.right)->forward(torch::ones({1, 4})).sum().backward();
      // Each branch is used by one rank of two: its gradient, 1, is halved.
      for (const torch::Tensor& parameter : net.parameters()) {
        EXPECT_TRUE(parameter.grad().equal(torch::full_like(parameter, 0.5)));
      }
    }
  });
}

TEST(DataParallel, FrozenParametersAreBroadcastButNotSynchronized) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    net->parameters()[0].requires_grad_(false);
    DataParallel replicas(world, *net, SmallBuckets());
    data.Loss(net, world.rank(), world.size()).backward();
    EXPECT_FALSE(net->parameters()[0].grad().defined());
    replicas.CheckReplicas();
  });
  EXPECT_TRUE(nets[0]->parameters()[0].equal(nets[1]->parameters()[0]));
}

TEST(DataParallel, TwoOptimizersShareOneModel) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, SmallBuckets());
    const std::vector<torch::Tensor> all = net->parameters();
    torch::optim::SGD body(std::vector<torch::Tensor>(all.begin(), all.begin() + 2), 0.1);
    torch::optim::Adam head(std::vector<torch::Tensor>(all.begin() + 2, all.end()), 0.01);
    for (int step = 0; step < 5; ++step) {
      body.zero_grad();
      head.zero_grad(false);
      data.Loss(net, world.rank(), world.size()).backward();
      head.step();
      body.step();
    }
    replicas.CheckReplicas();
  });
}

// One matrix used twice, a parameter of another dtype, a dense parameter whose elements lie in another order, and
// statistics in buffers.
struct Odd : torch::nn::Module {
  Odd() {
    torch::NoGradGuard no_grad;
    conv->weight.set_data(conv->weight.contiguous(torch::MemoryFormat::ChannelsLast));
    register_module("same", tied);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor features = norm->forward(conv->forward(x)).flatten(1);
    return tied->forward(tied->forward(features)).to(torch::kFloat64) * scale;
  }
  Conv2d conv = register_module("conv", Conv2d(Conv2dOptions(3, 2, 3)));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(2));
  Linear tied = register_module("tied", Linear(32, 32));
  torch::Tensor scale = register_parameter("scale", torch::rand({32}, torch::kFloat64));
};

TEST(DataParallel, OddModulesStayInStep) {
  const Images data;
  std::vector<std::shared_ptr<Odd>> nets = {std::make_shared<Odd>(), std::make_shared<Odd>()};
  torch::set_num_threads(1);
  RunWorld(2, [&](Communicator& world) {
    Odd& net = *nets[world.rank()];
    // Statistics of a batch differ between ranks where nobody makes them equal, and are then not compared.
    DataParallel replicas(world, net, {.buffers = Buffers::kLeave});
    ASSERT_TRUE(net.conv->weight.is_contiguous(torch::MemoryFormat::ChannelsLast));
    torch::optim::SGD optimizer(net.parameters(), 0.01);
    const torch::Tensor inputs = data.inputs.narrow(0, world.rank() * 8, 8);
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      net.forward(inputs).square().mean().backward();
      EXPECT_EQ(net.conv->weight.grad().strides(), net.conv->weight.strides());
      optimizer.step();
    }
    replicas.CheckReplicas();
  });
  EXPECT_EQ(LargestDifference(*nets[0], *nets[1]), 0);
}

TEST(DataParallel, BroadcastsTheOptimizer) {
  const Images data;
  std::vector<Sequential> nets = NetsWithDifferentWeights(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    torch::optim::Adam optimizer(net->parameters(), world.rank() == 0 ? 0.01 : 0.5);
    if (world.rank() == 0) {  // rank 0 has trained before, as if from a checkpoint
      data.Loss(net).backward();
      optimizer.step();
    }
    DataParallel replicas(world, *net, SmallBuckets());
    replicas.BroadcastOptimizer(optimizer);
    EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.01);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      data.Loss(net, world.rank(), world.size()).backward();
      optimizer.step();
    }
    replicas.CheckReplicas();
  });
}

TEST(DataParallel, DifferentModelsAreAnErrorThatNamesRankAndParameter) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(world.rank() == 0 ? 4 : 5, 2);
    const std::string error = ErrorOf([&] { DataParallel(world, *net); });
    EXPECT_THAT(error, AllOf(HasSubstr("rank 1"), HasSubstr("weight f32 2x5")));
  });
}

TEST(DataParallel, AMistakeOfOneRankIsAnErrorOnAll) {
  RunWorld(2, [&](Communicator& world) {
    Linear imaginary(2, 2);
    if (world.rank() == 1) imaginary->to(torch::kComplexHalf);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *imaginary); }),
                HasSubstr("rank 1 has arguments=parameter weight: gradients of ComplexHalf"));

    Linear wrapped(2, 2);
    const absl::StatusOr<std::unique_ptr<Communicator>> own = world.Split(/*color=*/world.rank(), /*key=*/0);
    ASSERT_TRUE(own.ok()) << own.status();
    std::optional<DataParallel> wrapper;
    if (world.rank() == 1) wrapper.emplace(**own, *wrapped);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *wrapped); }),
                AllOf(HasSubstr("rank 1 has arguments=parameter weight"), HasSubstr("wrapped twice")));
  });
}

TEST(DataParallel, DifferingWeightsAreFound) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    replicas.CheckReplicas();
    torch::NoGradGuard no_grad;
    if (world.rank() == 1) net->bias[0] += 1;
    EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }), AllOf(HasSubstr("replicas differ"), HasSubstr("rank 1")));
  });
}

TEST(DataParallel, RefusesWhatItCannotSynchronize) {
  RunWorld(1, [&](Communicator& world) {
    torch::nn::Embedding sparse(torch::nn::EmbeddingOptions(10, 4).sparse(true));
    const DataParallel replicas(world, *sparse);
    const torch::Tensor loss = sparse->forward(torch::tensor({1, 2})).sum();
    EXPECT_THAT(ErrorOf([&] { loss.backward(); }), HasSubstr("parameter weight has a sparse gradient"));

    Linear twice(2, 2);
    const DataParallel of_twice(world, *twice);
    const torch::Tensor square = twice->forward(torch::ones({1, 2})).square().sum();
    EXPECT_THAT(ErrorOf([&] { square.backward({}, /*retain_graph=*/true, /*create_graph=*/true); }),
                HasSubstr("called with create_graph=true (in Python: True)"));
    twice->zero_grad();  // the gradient has a graph that keeps the parameter alive

    Linear imaginary(2, 2);
    imaginary->to(torch::kComplexHalf);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *imaginary); }),
                HasSubstr("parameter weight: gradients of ComplexHalf"));
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *Linear(2, 2), {.strategy = "bytgrad"}); }),
                HasSubstr("valid: async, bytegrad"));
  });
}

// A slip that torch accepts: the scaled tensor, not the random one, becomes the parameter.
TEST(DataParallel, RefusesAParameterThatIsNoLeafOnAllRanks) {
  RunWorld(2, [&](Communicator& world) {
    Linear net(4, 2);
    const torch::Tensor noise = torch::rand({8}, torch::requires_grad());
    net->register_parameter("scale", world.rank() == 1 ? noise * 0.1 : noise);
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }),
                HasSubstr("parameter scale is the result of a computation"));
    net->forward(torch::ones({1, 4})).sum().backward();  // there are no hooks at the other parameters
  });
}

TEST(DataParallel, LeavesTheModuleAsItWasWhenItGoes) {
  Linear net(4, 2);
  torch::Tensor gradient;
  RunWorld(2, [&](Communicator& world) {
    Linear mine(4, 2);
    {
      const DataParallel replicas(world, *mine);
      mine->forward(torch::ones({1, 4})).sum().backward();
    }
    mine->zero_grad();
    mine->forward(torch::ones({1, 4})).sum().backward();  // the module is not wrapped any more
    if (world.rank() == 0) gradient = mine->bias.grad();
  });
  EXPECT_TRUE(gradient.equal(torch::ones({2})));
}

}  // namespace
}  // namespace tutti::nn
