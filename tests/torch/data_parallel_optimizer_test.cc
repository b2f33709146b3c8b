// BroadcastOptimizer copies the state of an optimizer from rank 0 to all ranks.
#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using torch::nn::Linear;

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

}  // namespace
}  // namespace tutti::nn
