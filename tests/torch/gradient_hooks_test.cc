// Which gradients are exchanged, and how often: NoSync, several backward() in a step, parameters that nobody uses.
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(NoSync, GuardsMayOverlapAndEndInAnyOrder) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      std::unique_ptr<DataParallel::NoSync> guard;
      for (int small_batch = 0; small_batch < 3; ++small_batch) {
        if (small_batch < 2) {
          guard = std::make_unique<DataParallel::NoSync>(replicas);  // made before the last guard is destroyed
        } else {
          guard.reset();
        }
        data.Loss(net, 3 * world.rank() + small_batch, 6).backward();
      }
      replicas.Step(optimizer);
    }
    EXPECT_EQ(replicas.TakeStatistics().steps, 3);
    replicas.CheckReplicas();
  });
}

TEST(NoSync, AStepFromGradientsThatWereNotExchangedIsAnError) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 2);
    optimizer.zero_grad();
    {
      const DataParallel::NoSync no_sync(replicas);
      data.Loss(net, world.rank(), 2).backward();
    }
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }),
                AllOf(HasSubstr("under NoSync"), HasSubstr("rank " + std::to_string(world.rank()) + " in step 2")));
  });
}

// Expects the gradients that one process with the data of all ranks has in p.grad().
void ExpectGradientsOf(const torch::Tensor& loss, Sequential& net) {
  const std::vector<torch::Tensor> expected = torch::autograd::grad({loss}, net->parameters());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(net->parameters()[i].grad().allclose(expected[i], 1e-4, 1e-5)) << "parameter " << i;
  }
}

class SeveralBackwards : public ::testing::TestWithParam<std::string> {};

TEST_P(SeveralBackwards, InOneStepAddUp) {
  const Data data;
  std::vector<Sequential> nets = Nets(3);
  RunWorld(3, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net, {.strategy = GetParam()});
    const double factor = GetParam().find("average=false") == std::string::npos ? 1 : 3;
    const auto all = [&](int part) {
      return factor / 3 * (data.Loss(net, part, 9) + data.Loss(net, 3 + part, 9) + data.Loss(net, 6 + part, 9));
    };
    for (const bool in_place : {true, false, true}) {
      net->zero_grad(!in_place);
      data.Loss(net, 3 * world.rank(), 9).backward();
      data.Loss(net, 3 * world.rank() + 1, 9).backward();
      ExpectGradientsOf(all(0) + all(1), net);
      {
        const DataParallel::NoSync no_sync(replicas);
        data.Loss(net, 3 * world.rank() + 2, 9).backward();
      }
      data.Loss(net, 3 * world.rank() + 2, 9).backward();
      ExpectGradientsOf(all(0) + all(1) + 2 * all(2), net);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, SeveralBackwards,
                         ::testing::Values("gradient_allreduce", "gradient_allreduce:average=false"),
                         [](const auto& test) { return test.index == 0 ? "Average" : "Sum"; });

// Two branches, of which a step may use one.
DataParallelOptions AllowUnused(std::string strategy = "gradient_allreduce") {
  return {.strategy = std::move(strategy), .allow_unused = true};
}

TEST(UnusedParameters, ThatNoRankUsesAreLeftAloneByOptimizers) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    DataParallel replicas(world, net, AllowUnused());
    torch::optim::Adam optimizer(net.parameters(), torch::optim::AdamOptions(0.1).weight_decay(0.1));
    torch::Tensor before;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      torch::Tensor loss = net.left->forward(torch::ones({1, 4})).sum();
      if (step < 3) loss = loss + net.right->forward(torch::ones({1, 4})).sum();  // later it has momentum only
      loss.backward();
      EXPECT_EQ(net.right->weight.grad().defined(), step < 3) << "step " << step;
      if (step == 3) before = net.right->weight.detach().clone();
      replicas.Step(optimizer);
    }
    EXPECT_TRUE(net.right->weight.equal(before));
    replicas.CheckReplicas();
  });
}

TEST(UnusedParameters, AreThoseThatWereFrozenToo) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    DataParallel replicas(world, net, AllowUnused());
    torch::optim::Adam optimizer(net.parameters(), 0.1);
    torch::Tensor before;
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      if (step == 3) {
        net.right->weight.requires_grad_(false);
        before = net.right->weight.clone();
      }
      (net.left->forward(torch::ones({1, 4})) + net.right->forward(torch::ones({1, 4}))).sum().backward();
      replicas.Step(optimizer);
    }
    EXPECT_TRUE(net.right->weight.equal(before));
    EXPECT_FALSE(net.right->weight.grad().defined());
    replicas.CheckReplicas();
  });
}

TEST(UnusedParameters, ThatOneRankUsesMoveOnAll) {
  RunWorld(3, [&](Communicator& world) {
    Branches net;
    DataParallel replicas(world, net, AllowUnused("gradient_allreduce:average=false"));
    for (int step = 0; step < 3; ++step) {
      net.zero_grad();
      (world.rank() == step ? net.left : net.right)->forward(torch::ones({1, 4})).sum().backward();
      EXPECT_TRUE(net.left->weight.grad().equal(torch::ones({2, 4})));
      EXPECT_TRUE(net.right->weight.grad().equal(torch::full({2, 4}, 2)));
    }
    // Averaged gradients to which nothing was added are not exchanged once more.
    net.left->forward(torch::ones({1, 4})).sum().backward();
    EXPECT_TRUE(net.left->weight.grad().equal(torch::full({2, 4}, 4)));
    EXPECT_TRUE(net.right->weight.grad().equal(torch::full({2, 4}, 2)));
  });
}

TEST(UnusedParameters, WithAGradientThatCannotBeExchangedAreAnErrorOfTheirBackwardAlone) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    DataParallel replicas(world, net, AllowUnused());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto backward = [&] { net.left->forward(torch::ones({1, 4})).sum().backward(); };
    net.right->weight.mutable_grad() = torch::ones({2, 4}, torch::kFloat64);
    EXPECT_THAT(ErrorOf(backward), AllOf(HasSubstr("parameter right.weight"), HasSubstr("its gradient is Double")));
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), HasSubstr("an exception has ended the last backward()"));
    optimizer.zero_grad();
    EXPECT_EQ(ErrorOf(backward), "");
    EXPECT_TRUE(net.left->weight.grad().equal(torch::ones({2, 4})));
    EXPECT_FALSE(net.right->weight.grad().defined());
    replicas.Step(optimizer);
    replicas.CheckReplicas();
  });
}

// Uses a parameter, and gives the parameter no gradient.
struct WithoutGradient : torch::autograd::Function<WithoutGradient> {
  static torch::Tensor forward(AutogradContext* /*context*/, const torch::Tensor& input,
                               const torch::Tensor& parameter) {
    return input + parameter.sum();
  }
  static tensor_list backward(AutogradContext* /*context*/, const tensor_list& gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

// The ranks below `learning` give right.weight the gradient 1, the others an undefined one.
torch::Tensor LossThatLeavesOneUndefined(Branches& net, const Communicator& world, int learning) {
  const torch::Tensor ones = torch::ones({1, 4});
  if (world.rank() < learning) return (net.left->forward(ones) + net.right->forward(ones)).sum();
  return WithoutGradient::apply((net.left->forward(ones) + net.right->bias).sum(), net.right->weight);
}

TEST(UndefinedGradients, AreZero) {
  for (const bool average : {true, false}) {
    RunWorld(2, [&](Communicator& world) {
      Branches net;
      DataParallel replicas(world, net,
                            {.strategy = average ? "gradient_allreduce" : "gradient_allreduce:average=false"});
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      for (const int learning : {0, 1, 2, 0}) {
        optimizer.zero_grad();
        LossThatLeavesOneUndefined(net, world, learning).backward();
        const double expected = average ? learning / 2.0 : learning;
        EXPECT_TRUE(net.right->weight.grad().equal(torch::full({2, 4}, expected))) << learning;
        replicas.Step(optimizer);
      }
      // The gradients that have been accumulated are exchanged.
      optimizer.zero_grad();
      {
        const DataParallel::NoSync no_sync(replicas);
        LossThatLeavesOneUndefined(net, world, 1).backward();
      }
      LossThatLeavesOneUndefined(net, world, 0).backward();
      EXPECT_TRUE(net.right->weight.grad().equal(torch::full({2, 4}, average ? 0.5 : 1)));
      replicas.Step(optimizer);
      replicas.CheckReplicas();
    });
  }
}

TEST(UndefinedGradients, AreThoseOfUnusedParametersWhenAllowed) {
  RunWorld(2, [&](Communicator& world) {
    Branches net;
    DataParallel replicas(world, net, AllowUnused());
    torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).weight_decay(0.1));
    for (const int learning : {0, 1, 2, 0}) {
      const torch::Tensor before = net.right->weight.detach().clone();
      optimizer.zero_grad();
      LossThatLeavesOneUndefined(net, world, learning).backward();
      if (learning == 0) {
        EXPECT_FALSE(net.right->weight.grad().defined());
      } else {
        EXPECT_TRUE(net.right->weight.grad().equal(torch::full({2, 4}, learning / 2.0)));
      }
      replicas.Step(optimizer);
      EXPECT_EQ(net.right->weight.equal(before), learning == 0);
    }
    replicas.CheckReplicas();
  });
}

TEST(Gradients, ThatBackwardHasNotMadeAreAnErrorOfTheStep) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 1);
    const std::vector<torch::Tensor> own = torch::autograd::grad({data.Loss(net, world.rank(), 2)}, net->parameters());
    for (std::size_t i = 0; i < own.size(); ++i) net->parameters()[i].mutable_grad() = own[i].clone();
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }),
                AllOf(HasSubstr("parameter 0.weight"), HasSubstr("torch::autograd::grad"), HasSubstr("in step 1")));
    // The step was refused and changed no weight.
    EXPECT_EQ(ErrorOf([&] { replicas.CheckReplicas(); }), "");
    EXPECT_EQ(ErrorOf([&] { Train(net, replicas, optimizer, data, world, 1); }), "");
    EXPECT_EQ(ErrorOf([&] { replicas.CheckReplicas(); }), "");
  });
}

TEST(Gradients, OfABackwardThatFailedAreNotStepped) {
  RunWorld(1, [&](Communicator& world) {
    Linear net(2, 2);
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const torch::Tensor before = net->weight.clone();
    world.Abort(absl::AbortedError("enough"));
    EXPECT_THAT(ErrorOf([&] { net->forward(torch::ones({1, 2})).sum().backward(); }), HasSubstr("enough"));
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), Not(""));
    EXPECT_THAT(ErrorOf([&] { replicas.Step([&] { optimizer.step(); }); }), Not(""));
    EXPECT_THAT(ErrorOf([&] { replicas.Flush(); }), HasSubstr("enough"));
    EXPECT_TRUE(net->weight.equal(before));
  });
}

TEST(Gradients, OfParametersWithoutAnElementAreNotMissing) {
  RunWorld(2, [](Communicator& world) {
    torch::nn::Module net;
    const torch::Tensor q = net.register_parameter("q", torch::empty({0, 3}));
    DataParallel replicas(world, net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(ErrorOf([&] { q.sum().backward(); }), "");
      EXPECT_EQ(ErrorOf([&] { replicas.Step(optimizer); }), "");
    }
  });
}

TEST(Gradients, MayBeReplacedBetweenBackwardAndStep) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      data.Loss(net, world.rank(), 2).backward();
      for (torch::Tensor& parameter : net->parameters()) parameter.mutable_grad() = parameter.grad() / 2;
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& its_calls) : calls(its_calls) {}
  void operator()(const torch::Tensor& /*parameter*/) override { ++calls; }

  int& calls;
};

// torch takes the hooks off a parameter that a computation writes, and lets them run for graphs of before.
TEST(GradientHooks, MayEndAfterAComputationHasWrittenAParameter) {
  RunWorld(1, [](Communicator& world) {
    for (const bool is_leaf_again : {false, true}) {
      Branches net;
      torch::Tensor before;
      {
        const DataParallel replicas(world, net);
        before = net.left->forward(torch::ones({1, 4})).sum();
        net.left->bias.requires_grad_(false);
        net.left->bias.copy_(net.right->bias);
        if (is_leaf_again) net.left->bias.detach_();
      }
      if (!is_leaf_again) continue;  // torch refuses the graph
      EXPECT_EQ(ErrorOf([&] { before.backward(); }), "");
      EXPECT_TRUE(net.left->weight.grad().equal(torch::ones({2, 4})));
    }
  });
}

// A parameter has one place for a hook after accumulation, which register_post_accumulate_grad_hook of Python takes.
TEST(GradientHooks, LiveBesideTheHookOfAParameter) {
  const Data data;
  std::vector<Sequential> nets = Nets(2);
  RunWorld(2, [&](Communicator& world) {
    Sequential& net = nets[world.rank()];
    DataParallel replicas(world, *net);
    int calls = 0;
    for (const torch::Tensor& parameter : net->parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<CountingHook>(calls));
    }
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Train(net, replicas, optimizer, data, world, 3);
    EXPECT_EQ(calls, 12);
    EXPECT_EQ(replicas.TakeStatistics().steps, 3);
    replicas.CheckReplicas();
    for (const torch::Tensor& parameter : net->parameters()) {
      torch::autograd::impl::post_acc_grad_hooks(parameter).reset();
    }
  });
}

}  // namespace
}  // namespace tutti::nn
