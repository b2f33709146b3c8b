// Statistics of BatchNorm when ranks make their steps together. (data_parallel_async_test.cc has those of async.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/normalized.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;

// The running means after one step of two ranks, each with data of its own.
std::vector<torch::Tensor> RunningMeans(Buffers buffers, const Data& data) {
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
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

TEST(Buffers, AreTreatedAlikeByAllRanksOrTheErrorNamesOne) {
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    const Buffers buffers = world.rank() == 0 ? Buffers::kBroadcast : Buffers::kAverage;
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *nets[world.rank()], {.buffers = buffers}); }),
                HasSubstr("rank 1 has buffers=kAverage, rank 0 has kBroadcast"));
  });
}

}  // namespace
}  // namespace tutti::nn
