// Where a backward() begins and ends when it runs inside of another backward(), or is ended by an exception.
#include "tutti/torch/backward_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
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
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch::nn::Linear;
using torch::nn::Sequential;

struct BadBatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A segment whose activations are not kept: its backward computes them anew, and calls backward() inside of backward().
struct Checkpointed : torch::autograd::Function<Checkpointed> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, std::int64_t segment) {
    context->saved_data["segment"] = segment;
    context->save_for_backward({input});
    const torch::AutoGradMode no_grad(false);
    return reinterpret_cast<torch::nn::SequentialImpl*>(segment)->forward(input);  // NOLINT
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    auto* const segment =
        reinterpret_cast<torch::nn::SequentialImpl*>(context->saved_data["segment"].toInt());  // NOLINT
    torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_();
    const torch::AutoGradMode grad(true);
    segment->forward(input).backward(gradients[0]);
    if (blows_after_the_nested_one) throw BadBatch("a bad batch");
    return {input.grad(), torch::Tensor()};
  }
  static inline thread_local bool blows_after_the_nested_one = false;
};

torch::Tensor ForwardCheckpointed(const Sequential& segment, const torch::Tensor& input) {
  return Checkpointed::apply(input, reinterpret_cast<std::int64_t>(segment.get()));
}

struct Segments : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool checkpointed) {
    torch::Tensor y = x;
    for (Sequential segment : {first, second}) {
      y = checkpointed ? ForwardCheckpointed(segment, y) : segment->forward(y);
    }
    return has_head ? head->forward(y) : y;
  }

  explicit Segments(bool its_head) : has_head(its_head) {
    if (has_head) register_module("head", head);
  }
  const bool has_head;
  Sequential first = register_module("first", Sequential(Linear(6, 8), torch::nn::Tanh()));
  Sequential second = register_module("second", Sequential(Linear(8, 8), torch::nn::Tanh(), Linear(8, 3)));
  Linear head = Linear(3, 3);
};

class Reentrant : public ::testing::TestWithParam<std::tuple<bool, std::string>> {};

// A net with a Checkpointed segment, the whole net or all but its head, has the gradients of the plain net.
TEST_P(Reentrant, BackwardsAreOne) {
  torch::set_num_threads(1);
  const auto& [has_head, strategy] = GetParam();
  const Data data;
  const std::vector<std::shared_ptr<Segments>> nets = {std::make_shared<Segments>(has_head),
                                                       std::make_shared<Segments>(has_head)};
  RunWorld(2, [&](Communicator& world) {
    Segments& net = *nets[world.rank()];
    DataParallel replicas(world, net,
                          {.strategy = std::get<1>(GetParam()), .bucket_bytes = 256, .first_bucket_bytes = 64});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const torch::Tensor inputs = data.inputs.narrow(0, 16 * world.rank(), 16).clone().requires_grad_();
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      net.forward(inputs, /*checkpointed=*/false).square().mean().backward();
      std::vector<torch::Tensor> expected;
      for (const torch::Tensor& parameter : net.parameters()) expected.push_back(parameter.grad().clone());
      optimizer.zero_grad(step % 2 == 0);
      replicas.TakeStatistics();
      net.forward(inputs, /*checkpointed=*/true).square().mean().backward();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(net.parameters()[i].grad().equal(expected[i])) << "step " << step << " parameter " << i;
      }
      replicas.Step(optimizer);
      EXPECT_EQ(replicas.TakeStatistics().steps, 1);
    }
    replicas.Flush();
    replicas.CheckReplicas();
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, Reentrant, ::testing::Combine(::testing::Bool(), ::testing::Values("gradient_allreduce", "decentralized")),
    [](const auto& test) {
      return std::string(std::get<0>(test.param) ? "UpToTheHead_" : "AsAWhole_") + std::get<1>(test.param);
    });

// A parameter without a gradient leaves the nested backwards incomplete: what follows them ends the exchange, before
// backward() returns.
TEST(ReentrantWithUnused, BackwardEndsWithTheExchange) {
  torch::set_num_threads(1);
  const Data data;
  const std::vector<std::shared_ptr<Segments>> nets = {std::make_shared<Segments>(false),
                                                       std::make_shared<Segments>(false)};
  RunWorld(2, [&](Communicator& world) {
    Segments& net = *nets[world.rank()];
    net.register_module("unused", Linear(2, 2));
    DataParallel replicas(world, net, {.bucket_bytes = 256, .first_bucket_bytes = 64, .allow_unused = true});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto loss = [&](Rank rank, bool checkpointed) {
      const torch::Tensor inputs = data.inputs.narrow(0, 16 * rank, 16).clone().requires_grad_();
      return net.forward(inputs, checkpointed).square().mean();
    };
    for (int step = 0; step < 4; ++step) {
      std::vector<torch::Tensor> trained = net.parameters();
      trained.resize(trained.size() - 2);
      const std::vector<torch::Tensor> expected =
          torch::autograd::grad({(loss(0, false) + loss(1, false)) / 2}, trained);
      optimizer.zero_grad();
      loss(world.rank(), true).backward();
      EXPECT_EQ(replicas.TakeStatistics().steps, 1);
      for (std::size_t i = 0; i < trained.size(); ++i) {
        EXPECT_TRUE(trained[i].grad().allclose(expected[i], 1e-4, 1e-6)) << "step " << step << " parameter " << i;
      }
      optimizer.step();
    }
    replicas.CheckReplicas();
  });
}

// The identity, whose backward throws when it is told to.
struct Fuse : torch::autograd::Function<Fuse> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& input, bool blows) {
    context->saved_data["blows"] = blows;
    return input.clone();
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    if (context->saved_data["blows"].toBool()) throw BadBatch("a bad batch");
    return {gradients[0], torch::Tensor()};
  }
};

// A loss whose backward throws between the gradients of the second layer and those of the first.
torch::Tensor LossWithFuse(Sequential& net, const Data& data, Rank rank, int size, bool blows) {
  const std::int64_t n = data.inputs.size(0) / size;
  const torch::Tensor hidden = net[0]->as<Linear>()->forward(data.inputs.narrow(0, rank * n, n)).relu();
  const torch::Tensor output = net[2]->as<Linear>()->forward(Fuse::apply(hidden, blows));
  return torch::mse_loss(output, data.targets.narrow(0, rank * n, n));
}

struct Buckets {
  std::string name;
  std::int64_t first_bytes;
};
class ExceptionInBackward : public ::testing::TestWithParam<Buckets> {
 protected:
  DataParallelOptions Options(std::string strategy = "gradient_allreduce") const {
    return {.strategy = std::move(strategy), .first_bucket_bytes = GetParam().first_bytes};
  }
};

// Lets the buckets of rank 0 wait for those of rank 1, while rank 0 zeroes its gradients and begins anew.
void ComeLateAsRank1(const Communicator& world) {
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

TEST_P(ExceptionInBackward, ThatAllRanksCatchMayBeFollowedByTheSameBackward) {
  const Data data;
  for (const bool average : {true, false}) {
    std::vector<Sequential> nets = Nets(2);
    RunWorld(2, [&](Communicator& world) {
      Sequential& net = nets[world.rank()];
      DataParallel replicas(world, *net, Options(average ? "gradient_allreduce" : "gradient_allreduce:average=false"));
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        const auto backward = [&](bool blows) {
          optimizer.zero_grad(step % 2 == 0);
          LossWithFuse(net, data, world.rank(), 2, blows).backward();
        };
        for (int attempt = 0; attempt < step; ++attempt) {
          ComeLateAsRank1(world);
          EXPECT_THROW(backward(true), BadBatch);
          EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("an exception has ended"));
        }
        backward(false);
        const std::vector<torch::Tensor> expected =
            torch::autograd::grad({(average ? 1 : 2) * LossWithFuse(net, data, 0, 1, false)}, net->parameters());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_TRUE(net->parameters()[i].grad().allclose(expected[i], 1e-4, 1e-5))
              << "step " << step << " parameter " << i;
        }
        replicas.Step(optimizer);
      }
      replicas.CheckReplicas();
    });
  }
}

// Gradients that were accumulated before are zeroed together with those of the backward that was ended.
TEST_P(ExceptionInBackward, MayBeFollowedByAccumulation) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, Options());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto backward = [&](bool blows) { LossWithFuse(net, data, world.rank(), 2, blows).backward(); };
    const auto accumulate = [&](bool blows) {
      const DataParallel::NoSync no_sync(replicas);
      backward(blows);
    };
    for (int step = 0; step < 3; ++step) {
      accumulate(false);
      ComeLateAsRank1(world);
      EXPECT_THROW(backward(true), BadBatch);
      optimizer.zero_grad(false);
      accumulate(false);
      EXPECT_THROW(accumulate(true), BadBatch);  // sends nothing, and adds the gradient of the second layer once more
      backward(false);
      const std::vector<torch::Tensor> expected =
          torch::autograd::grad({2 * LossWithFuse(net, data, 0, 1, false)}, net->parameters());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double times = i < 2 ? 1 : 1.5;
        EXPECT_TRUE(net->parameters()[i].grad().allclose(times * expected[i], 1e-4, 1e-5)) << "parameter " << i;
      }
      replicas.Step(optimizer);
      optimizer.zero_grad(false);
    }
    replicas.CheckReplicas();
  });
}

// Trains Segments by `backward`, which throws BadBatch when it is told to, and is repeated then; in every other step
// after an attempt to make the step all the same.
void TrainThroughExceptions(
    const DataParallelOptions& options,
    const std::function<void(Segments& net, const torch::Tensor& inputs, bool blows)>& backward) {
  const Data data;
  const std::vector<std::shared_ptr<Segments>> nets = {std::make_shared<Segments>(false),
                                                       std::make_shared<Segments>(false)};
  constexpr int kSteps = 6;
  RunWorld(2, [&](Communicator& world) {
    Segments& net = *nets[world.rank()];
    DataParallel replicas(world, net, options);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const torch::Tensor inputs = data.inputs.narrow(0, 16 * world.rank(), 16).clone().requires_grad_();
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      EXPECT_THROW(backward(net, inputs, true), BadBatch);
      if (step % 2 == 0) {
        EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("an exception has ended"));
      }
      optimizer.zero_grad();
      backward(net, inputs, false);
      replicas.Step(optimizer);
    }
    EXPECT_EQ(replicas.TakeStatistics().steps, kSteps);
    replicas.CheckReplicas();
  });
}

TEST_P(ExceptionInBackward, BetweenNestedBackwardsMayBeFollowedByTheSameBackward) {
  TrainThroughExceptions(Options(), [](Segments& net, const torch::Tensor& inputs, bool blows) {
    const torch::Tensor hidden = Fuse::apply(ForwardCheckpointed(net.first, inputs), blows);
    ForwardCheckpointed(net.second, hidden).square().mean().backward();
  });
}

// The segment itself throws, when its nested backward() has ended and before anything of the outer one runs.
TEST_P(ExceptionInBackward, AfterANestedBackwardMayBeFollowedByTheSameBackward) {
  TrainThroughExceptions(Options(), [](Segments& net, const torch::Tensor& inputs, bool blows) {
    Checkpointed::blows_after_the_nested_one = blows;
    net.forward(inputs, /*checkpointed=*/true).square().mean().backward();
  });
}

// The inputs are a leaf, whose node keeps a hook of the segment that threw.
TEST_P(ExceptionInBackward, LeavesTheInputsToBackwardsOfOtherModules) {
  const Data data;
  const std::vector<std::shared_ptr<Segments>> nets = {std::make_shared<Segments>(false),
                                                       std::make_shared<Segments>(false)};
  std::latch both_are_done(2);
  RunWorld(2, [&](Communicator& world) {
    Segments& net = *nets[world.rank()];
    DataParallel replicas(world, net, Options());
    const torch::Tensor inputs = data.inputs.clone().requires_grad_();
    const torch::Tensor other = (2 * inputs).sum();  // keeps the node of the inputs
    Checkpointed::blows_after_the_nested_one = true;
    EXPECT_THROW(ForwardCheckpointed(net.first, inputs).sum().backward(), BadBatch);
    Checkpointed::blows_after_the_nested_one = false;
    other.backward();
    EXPECT_TRUE(inputs.grad().equal(torch::full_like(inputs, 2)));
    both_are_done.arrive_and_wait();  // a DataParallel that ends in the middle of a step ends its peer's, too
  });
}

// Buckets of the backward that was ended may still be on their way.
TEST_P(ExceptionInBackward, IsNoObstacleForTheLossScaleAndTheState) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, Options("bytegrad:codec=sign,error_feedback=true"));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      EXPECT_THROW(LossWithFuse(net, data, world.rank(), 2, true).backward(), BadBatch);
      const std::string state = replicas.SaveState();
      EXPECT_EQ(replicas.SaveState(), state);
      replicas.SetLossScale(2 << step);
      EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("an exception has ended"));
      optimizer.zero_grad();
      LossWithFuse(net, data, world.rank(), 2, false).backward();
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
}

TEST_P(ExceptionInBackward, InAClosureMayBeFollowedByTheSameStep) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, Options());
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto step = [&](bool blows) {
      replicas.Step([&] {
        optimizer.step([&] {
          optimizer.zero_grad();
          const torch::Tensor loss = LossWithFuse(net, data, world.rank(), 2, blows);
          loss.backward();
          return loss;
        });
      });
    };
    for (int i = 0; i < 3; ++i) {
      EXPECT_THROW(step(true), BadBatch);
      step(false);
    }
    EXPECT_EQ(replicas.TakeStatistics().steps, 3);
    replicas.CheckReplicas();
  });
}

TEST_P(ExceptionInBackward, IsNoObstacleForQAdam) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, Options("qadam:warmup_steps=2"));
    QAdam optimizer(replicas, net->parameters());
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad(step % 2 == 0);
      ComeLateAsRank1(world);
      EXPECT_THROW(LossWithFuse(net, data, world.rank(), 2, true).backward(), BadBatch);
      EXPECT_THAT(ErrorOf([&] { optimizer.step(); }), HasSubstr("an exception has ended"));
      optimizer.zero_grad(step % 2 == 0);
      LossWithFuse(net, data, world.rank(), 2, false).backward();
      optimizer.step();
    }
    replicas.CheckReplicas();
  });
}

TEST_P(ExceptionInBackward, IsNoObstacleForExchangesOfWeights) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, Options("decentralized"));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      EXPECT_THROW(LossWithFuse(net, data, world.rank(), 2, true).backward(), BadBatch);
      replicas.Step([] {});  // the step is skipped
      Train(net, replicas, optimizer, data, world, 1);
    }
    replicas.Flush();
    replicas.CheckReplicas();
  });
}

INSTANTIATE_TEST_SUITE_P(All, ExceptionInBackward,
                         ::testing::Values(Buckets{"BeforeABucketHasLeft", 1 << 20},
                                           Buckets{"AfterABucketHasLeft", 16}),
                         [](const ::testing::TestParamInfo<Buckets>& test) { return test.param.name; });

}  // namespace
}  // namespace tutti::nn
