// Statistics of BatchNorm when ranks make their steps together. (data_parallel_async_test.cc has those of async.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/normalized.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;
using torch::nn::BatchNorm1d;

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

TEST(BatchNorm, TheWaitForALateRankCountsAsExposed) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RankBarrier optimizers(2);
  RunWorld(2, {.barrier = &optimizers}, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net);
    net.forward(data.inputs).square().mean().backward();
    (void)replicas.TakeStatistics();
    replicas.Step([&] {
      optimizers.Wait();
      if (world.rank() == 0) absl::SleepFor(absl::Seconds(1));
    });
    const SyncStatistics statistics = replicas.TakeStatistics();
    if (world.rank() == 1) {
      EXPECT_GE(statistics.exposed, absl::Milliseconds(200));
    }
    EXPECT_GE(statistics.communication, statistics.exposed);
    EXPECT_EQ(replicas.TakeStatistics().exposed, absl::ZeroDuration());
  });
}

TEST(Buffers, AreTreatedAlikeByAllRanksOrTheErrorNamesOne) {
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    const Buffers buffers = world.rank() == 0 ? Buffers::kBroadcast : Buffers::kAverage;
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *nets[world.rank()], {.buffers = buffers}); }),
                HasSubstr("rank 1 has buffers=kAverage, rank 0 has kBroadcast"));
  });
}

TEST(Buffers, LeftAloneAreEachRanksOwnFromTheBeginning) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  nets[1]->register_buffer("table", torch::ones({3}));  // rank 0 has none
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    const auto mine = static_cast<double>(world.rank());
    net.norm->running_mean.fill_(mine);
    DataParallel replicas(world, net, {.buffers = Buffers::kLeave});
    EXPECT_TRUE(net.norm->running_mean.eq(mine).all().item<bool>());
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    net.forward(data.inputs.narrow(0, 16 * world.rank(), 16)).square().mean().backward();
    replicas.Step(optimizer);
    replicas.CheckReplicas();
    replicas.Broadcast();
  });
  EXPECT_FALSE(nets[0]->norm->running_mean.equal(nets[1]->norm->running_mean));
}

// A module whose statistics are replaced, and that registers a buffer when it runs for the first time.
struct Changing : torch::nn::Module {
  static BatchNorm1d MakeNorm() { return BatchNorm1d(torch::nn::BatchNormOptions(6).affine(false)); }
  torch::Tensor forward(const torch::Tensor& x) {
    if (!first.defined()) first = register_buffer("first", x[0].clone());
    return linear->forward(norm->forward(x));
  }

  BatchNorm1d norm = register_module("norm", MakeNorm());
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
  torch::Tensor first;
};

TEST(Buffers, ThatAreReplacedOrRegisteredLaterAreKeptEqual) {
  const Data data;
  std::vector<Changing> nets(2);
  RunWorld(2, [&](Communicator& world) {
    Changing& net = nets[world.rank()];
    DataParallel replicas(world, net);
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto step = [&] {
      optimizer.zero_grad();
      net.forward(data.inputs.narrow(0, 16 * world.rank(), 16)).sum().backward();
      EXPECT_THAT(ErrorOf([&] { replicas.CheckReplicas(); }), HasSubstr("replicas differ"));
      replicas.Step(optimizer);
      replicas.CheckReplicas();
    };
    step();
    EXPECT_TRUE(net.first.equal(data.inputs[0]));
    net.replace_module("norm", net.norm = Changing::MakeNorm());
    step();
  });
  EXPECT_FALSE(nets[0].norm->running_mean.eq(0).any().item<bool>());
  EXPECT_TRUE(nets[0].norm->running_mean.equal(nets[1].norm->running_mean));
}

TEST(Buffers, ThatOneRankAloneRegistersAreAnError) {
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  std::vector<std::string> errors(2);
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net);
    if (world.rank() == 1) net.register_buffer("late", torch::ones({2}));
    errors[world.rank()] = ErrorOf([&] { replicas.Flush(); });
  });
  EXPECT_NE(errors[0], "");
  EXPECT_THAT(errors[1], HasSubstr("buffer late of rank 1 has come, gone or changed its type or shape"));
}

// The exchange of weights has written them before buffers are made equal: that is no change from outside.
TEST(Buffers, ThatDifferInOneCallAreNoErrorOnceTheyAreMended) {
  const Data data;
  for (const bool flushes : {false, true}) {
    const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
    RunWorld(2, [&](Communicator& world) {
      Normalized& net = *nets[world.rank()];
      DataParallel replicas(world, net, {.strategy = "decentralized"});
      torch::optim::SGD optimizer(net.parameters(), 0.1);
      const auto backward = [&] { net.forward(data.inputs).square().mean().backward(); };
      const torch::Dtype mine = world.rank() == 0 ? torch::kFloat32 : torch::kFloat64;
      torch::Tensor late = net.register_buffer("late", torch::ones({2}, mine));
      backward();
      EXPECT_THAT(ErrorOf([&] { flushes ? replicas.Flush() : replicas.Step(optimizer); }), HasSubstr("buffer late"));
      late.set_data(torch::ones({3}));
      backward();
      replicas.Step(optimizer);
      replicas.Flush();
      replicas.CheckReplicas();
    });
  }
}

TEST(Buffers, ThatAFailedRankDoesNotSendAreAnErrorThatNamesTheFailureInLaterCallsToo) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net, {.strategy = "decentralized"});
    torch::optim::SGD optimizer(net.parameters(), 0.1);
    const auto failed = HasSubstr("rank 0 has failed");
    net.forward(data.inputs).square().mean().backward();
    const auto update = [&] {
      if (world.rank() == 1) return;
      absl::SleepFor(absl::Milliseconds(300));  // rank 1 waits for buffers meanwhile
      world.Abort(absl::AbortedError("rank 0 has failed"));
    };
    EXPECT_THAT(ErrorOf([&] { replicas.Step(update); }), failed);
    EXPECT_EQ(ErrorOf([&] { net.forward(data.inputs).square().mean().backward(); }), "");
    EXPECT_THAT(ErrorOf([&] { replicas.Step(optimizer); }), failed);
  });
}

// Tensors of many types and layouts, in values that all types have.
std::vector<torch::Tensor> ManyKinds(double value) {
  return {torch::full({4, 2}, value),
          torch::scalar_tensor(value, torch::kInt64),
          torch::full({3}, value, torch::kFloat64),
          torch::full({4, 6}, value).t(),
          torch::empty({0}),
          torch::full({5}, value, torch::kBool),
          torch::scalar_tensor(value),
          torch::full({3}, value, torch::kComplexFloat).conj(),
          torch::full({1 << 19}, value),
          torch::full({7}, value, torch::kInt64)};
}

TEST(Buffers, OfManyKindsAreMadeEqual) {
  for (const Buffers mode : {Buffers::kBroadcast, Buffers::kAverage}) {
    RunWorld(2, [&](Communicator& world) {
      torch::nn::Linear net(2, 2);
      std::vector<torch::Tensor> buffers = ManyKinds(0);
      for (std::size_t i = 0; i < buffers.size(); ++i) net->register_buffer("b" + std::to_string(i), buffers[i]);
      DataParallel replicas(world, *net, {.buffers = mode});
      const std::vector<torch::Tensor> mine = ManyKinds(world.rank());
      for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(mine[i]);
      replicas.Flush();
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        const bool averaged = mode == Buffers::kAverage && (buffers[i].is_floating_point() || buffers[i].is_complex());
        EXPECT_TRUE(buffers[i].eq(averaged ? 0.5 : 0.0).all().item<bool>()) << "buffer " << i;
      }
    });
  }
}

TEST(Buffers, OfManyModulesTravelTogether) {
  for (const Buffers mode : {Buffers::kBroadcast, Buffers::kAverage}) {
    RunWorld(2, [&](Communicator& world) {
      torch::nn::Sequential net;
      for (int i = 0; i < 20; ++i) net->push_back(BatchNorm1d(6));
      DataParallel replicas(world, *net, {.buffers = mode});
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      net->forward(torch::ones({4, 6})).sum().backward();
      const std::int64_t before = world.counters().calls;
      replicas.Step(optimizer);
      EXPECT_EQ(world.counters().calls - before, 2);  // of floats, and of counters
    });
  }
}

// A module that replaces such a buffer frees its memory.
TEST(Buffers, OfEachRankAreTheModulesAlone) {
  RunWorld(1, [](Communicator& world) {
    torch::nn::Linear net(2, 2);
    const torch::Tensor buffer = net->register_buffer("b", torch::zeros({2}));
    for (const auto& [mode, kept] : {std::pair(Buffers::kLeave, false), std::pair(Buffers::kBroadcast, true)}) {
      const auto before = buffer.use_count();
      DataParallel replicas(world, *net, {.buffers = mode});
      replicas.Flush();
      EXPECT_EQ(buffer.use_count() > before, kept);
    }
  });
}

// The copy by way of which buffers travel together has at most 1 MiB.
TEST(Buffers, OfMuchMemoryTogetherTravelInSeveralCalls) {
  RunWorld(2, [](Communicator& world) {
    torch::nn::Linear net(2, 2);
    std::vector<torch::Tensor> buffers;
    for (const std::int64_t count : {230'000, 230'000, 10'000, 230'000, 10'000}) {  // 0.9 MiB and 40 kB
      buffers.push_back(torch::zeros({count}));
      net->register_buffer("b" + std::to_string(buffers.size()), buffers.back());
    }
    DataParallel replicas(world, *net);
    for (torch::Tensor& buffer : buffers) buffer.fill_(world.rank() + 5);
    const std::int64_t before = world.counters().calls;
    replicas.Step([] {});
    EXPECT_EQ(world.counters().calls - before, 3);
    for (const torch::Tensor& buffer : buffers) EXPECT_TRUE(buffer.eq(5).all().item<bool>());
  });
}

// A graph that has saved the statistics of BatchNorm is alive while a step makes them equal.
TEST(Buffers, MadeEqualDoNotDisturbAGraph) {
  const Data data;
  const std::vector<std::shared_ptr<Normalized>> nets = TwoNormalized();
  RunWorld(2, [&](Communicator& world) {
    Normalized& net = *nets[world.rank()];
    DataParallel replicas(world, net);
    net.eval();
    const torch::Tensor loss = net.forward(data.inputs).square().mean();
    replicas.Flush();
    loss.backward();
  });
}

}  // namespace
}  // namespace tutti::nn
