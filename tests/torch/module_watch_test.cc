// Parameters that change after the module was wrapped.
#include "tutti/torch/module_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::Linear;

struct Net : torch::nn::Module {
  Net() { frozen->weight.requires_grad_(false); }
  // The sum of all parameters, also of those that were added later.
  torch::Tensor Loss() {
    torch::Tensor loss = torch::zeros({});
    for (const torch::Tensor& parameter : parameters()) loss = loss + parameter.to(torch::kFloat32).sum();
    return loss;
  }

  Linear body = register_module("body", Linear(4, 4));
  Linear frozen = register_module("frozen", Linear(4, 2));
  torch::Tensor scale;
};

struct Change {
  std::string name;
  std::function<void(Net&)> apply;
  std::string told;
};

class ChangedModule : public ::testing::TestWithParam<Change> {};

TEST_P(ChangedModule, IsAnErrorOfTheNextBackwardAndCheck) {
  for (const std::string strategy : {"gradient_allreduce", "decentralized"}) {
    RunWorld(2, [&](Communicator& world) {
      const auto net = std::make_shared<Net>();
      DataParallel replicas(world, *net, {.strategy = strategy});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      const auto step = [&] {
        optimizer.zero_grad();
        net->Loss().backward();
        replicas.Step(optimizer);
      };
      step();
      replicas.CheckReplicas();
      {
        const torch::NoGradGuard no_grad;
        GetParam().apply(*net);
      }
      const auto told = AllOf(HasSubstr(GetParam().told), HasSubstr("wrap the module anew"));
      const std::string where = "rank " + std::to_string(world.rank()) + " in step 1";
      EXPECT_THAT(ErrorOf([&] { net->Loss().backward(); }), AllOf(told, HasSubstr(where)));
      EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), told);
      EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }), told);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ChangedModule,
    ::testing::Values(
        Change{"Registered", [](Net& net) { net.scale = net.register_parameter("scale", torch::ones({2})); },
               "parameter scale was registered"},
        Change{"Unfrozen", [](Net& net) { net.frozen->weight.requires_grad_(true); },
               "parameter frozen.weight was unfrozen"},
        Change{"Converted", [](Net& net) { net.body->weight.set_data(net.body->weight.to(torch::kFloat64)); },
               "parameter body.weight was converted from Float to Double"},
        Change{"Replaced", [](Net& net) { net.replace_module("body", net.body = Linear(4, 4)); },
               "parameter body.weight was registered"},
        Change{"Reshaped",
               [](Net& net) {
                 net.body->weight.set_data(torch::ones({2, 8}));
               },
               "parameter body.weight was given another shape"},
        Change{"Computed",
               [](Net& net) {
                 const torch::AutoGradMode grad(true);
                 net.body->bias.requires_grad_(false);
                 net.body->bias.copy_(net.body->weight[0]);
               },
               "parameter body.bias was written by a computation that autograd records"},
        Change{"Removed", [](Net& net) { net.unregister_module("body"); }, "parameter body.weight was removed"}),
    [](const ::testing::TestParamInfo<Change>& test) { return test.param.name; });

TEST(ChangedModule, OfOneRankIsAnErrorOfTheCheckOnAll) {
  RunWorld(2, [](Communicator& world) {
    const auto net = std::make_shared<Net>();
    DataParallel replicas(world, *net);
    if (world.rank() == 1) net->register_parameter("scale", torch::ones({2}));
    EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }),
                AllOf(HasSubstr("rank 1"), HasSubstr("parameter scale was registered")));
  });
}

TEST(ChangedModule, MayGoBeforeItsWrapper) {
  RunWorld(2, [](Communicator& world) {
    auto net = std::make_shared<Net>();
    DataParallel replicas(world, *net);
    const torch::Tensor loss = net->Loss();
    net.reset();
    loss.backward();
    replicas.CheckReplicas();
  });
}

TEST(CheckReplicas, NamesTheParameter) {
  RunWorld(2, [](Communicator& world) {
    Linear net(4, 2);
    DataParallel replicas(world, *net);
    torch::NoGradGuard no_grad;
    if (world.rank() == 1) net->bias[0] += 1;
    EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }), AllOf(HasSubstr("hash of bias"), HasSubstr("rank 1")));
  });
}

}  // namespace
}  // namespace tutti::nn
