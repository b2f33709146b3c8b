// Data-parallel training of modules on GPUs; GPU, CUDA and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/world.h"
#include "tests/torch/error_of.h"
#include "tests/torch/fake_gpu.h"
#include "tests/torch/small_net.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;

at::Device DeviceOf(const Communicator& world, bool on_gpu) {
  return on_gpu ? Gpu(world.rank()) : at::Device(at::kCPU);
}

torch::nn::Sequential NetWithBuffers() {
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::BatchNorm1d(16), torch::nn::ReLU(),
                               torch::nn::Linear(16, 3));
}

// All parameters and buffers, on the CPU.
torch::Tensor StateOf(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : net->parameters()) parts.push_back(tensor.detach().flatten().cpu());
  for (const torch::Tensor& tensor : net->buffers()) parts.push_back(tensor.detach().flatten().to(at::kFloat).cpu());
  return torch::cat(parts);
}

struct Training {
  std::string strategy;
  Buffers buffers = Buffers::kBroadcast;
  bool other_stream = false;  // computes on another stream than the default one
};

// The states of all ranks after a few steps of the same training on the CPU or on GPUs.
std::vector<torch::Tensor> Train(const Training& training, bool on_gpu) {
  constexpr int kSteps = 6;
  torch::set_num_threads(1);
  torch::manual_seed(5);
  const torch::nn::Sequential first = NetWithBuffers();
  std::vector<torch::nn::Sequential> nets;
  for (int rank = 0; rank < kRanks; ++rank) {
    nets.push_back(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(first->clone()));
  }
  const Data data;
  std::vector<torch::Tensor> states(kRanks);
  RunWorld(kRanks, OnDevices(), [&](Communicator& world) {
    const at::Device device = DeviceOf(world, on_gpu);
    c10::OptionalStreamGuard guard;
    if (on_gpu && training.other_stream) guard.reset_stream(AnotherStream(world.rank()));
    torch::nn::Sequential& net = nets[world.rank()];
    net->to(device);
    const std::int64_t n = data.inputs.size(0) / world.size();
    const torch::Tensor inputs = data.inputs.narrow(0, world.rank() * n, n).to(device);
    const torch::Tensor targets = data.targets.narrow(0, world.rank() * n, n).to(device);
    const bool is_qadam = training.strategy.rfind("qadam", 0) == 0;
    DataParallel replicas(world, *net,
                          {.strategy = training.strategy, .bucket_bytes = 256, .buffers = training.buffers});
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (is_qadam) {
      optimizer = std::make_unique<QAdam>(replicas, net->parameters(), QAdamOptions(0.01));
    } else {
      optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.05);
    }
    for (int step = 0; step < kSteps; ++step) {
      optimizer->zero_grad();
      torch::mse_loss(net->forward(inputs), targets).backward();
      replicas.Step(*optimizer);
    }
    replicas.Flush();
    replicas.CheckReplicas();
    states[world.rank()] = StateOf(net);
  });
  return states;
}

void ExpectAsOnTheCpu(const Training& training) {
  const std::vector<torch::Tensor> on_cpu = Train(training, false);
  const SlowGpu slow(1);
  const std::vector<torch::Tensor> on_gpu = Train(training, true);
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(on_gpu[rank].defined() && on_cpu[rank].defined()) << training.strategy;
    EXPECT_LT((on_gpu[rank] - on_cpu[rank]).abs().max().item<float>(), 1e-4)
        << training.strategy << ", rank " << rank << "\n"
        << on_gpu[rank] << on_cpu[rank];
  }
}

class DataParallelGpuStrategyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(DataParallelGpuStrategyTest, TrainsAsOnTheCpu) { ExpectAsOnTheCpu({.strategy = GetParam()}); }

TEST_P(DataParallelGpuStrategyTest, TrainsOnAnotherStream) {
  ExpectAsOnTheCpu({.strategy = GetParam(), .buffers = Buffers::kAverage, .other_stream = true});
}

INSTANTIATE_TEST_SUITE_P(All, DataParallelGpuStrategyTest,
                         ::testing::Values("gradient_allreduce", "gradient_allreduce:average=false", "bytegrad",
                                           "bytegrad:error_feedback=true", "decentralized",
                                           "decentralized:peer_selection_mode=shift_one", "low_precision_decentralized",
                                           "async:warmup_steps=100", "qadam:warmup_steps=3"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

// AdamW writes each weight several times, as an evaluation with averaged weights does, but before each backward.
TEST(DataParallelGpuTest, SeesAnOptimizerThatWritesMoreThanOnce) {
  for (const char* const strategy : {"decentralized", "low_precision_decentralized", "async:sync_interval_ms=1"}) {
    RunWorld(1, OnDevices(), [&](Communicator& world) {
      torch::nn::Sequential net = MakeNet();
      net->to(Gpu(0));
      DataParallel replicas(world, *net, {.strategy = strategy});
      torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.1));
      const auto backward = [&] { net->forward(torch::ones({2, 6}, Gpu(0))).sum().backward(); };
      const auto swap_for_evaluation = [&] {
        const torch::NoGradGuard no_grad;
        for (torch::Tensor& weight : net->parameters()) weight.add_(1).sub_(1);
      };
      for (int step = 0; step < 3; ++step) {
        backward();
        swap_for_evaluation();
        replicas.Step(optimizer);
        swap_for_evaluation();
      }
      replicas.Broadcast();
      backward();
      optimizer.step();
      backward();
      optimizer.step();
      EXPECT_THAT(ErrorOf(backward), HasSubstr("weights were changed outside of"));
      EXPECT_THAT(ErrorOf(backward), HasSubstr("weights were changed outside of"));
      replicas.Broadcast();
      backward();
      replicas.Step(optimizer);
    });
  }
}

TEST(DataParallelGpuTest, GradientsAreViewsOfBucketsOnTheGpu) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    net->to(Gpu(0));
    DataParallel replicas(world, *net);
    net->forward(torch::ones({2, 6}, Gpu(0))).sum().backward();
    std::vector<void*> places;
    for (const torch::Tensor& parameter : net->parameters()) {
      EXPECT_EQ(parameter.grad().device(), Gpu(0));
      places.push_back(parameter.grad().data_ptr());
    }
    net->zero_grad();
    net->forward(torch::ones({2, 6}, Gpu(0))).sum().backward();
    for (std::size_t i = 0; i < places.size(); ++i) EXPECT_EQ(net->parameters()[i].grad().data_ptr(), places[i]);
  });
}

TEST(DataParallelGpuTest, AStateGoesOnWhereItWasSaved) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    net->to(Gpu(0));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    DataParallel replicas(world, *net, {.strategy = "bytegrad:error_feedback=true"});
    const auto step = [&] {
      optimizer.zero_grad();
      net->forward(torch::ones({2, 6}, Gpu(0))).square().sum().backward();
      replicas.Step(optimizer);
    };
    step();
    const std::string saved = replicas.SaveState();
    const torch::Tensor weights = WeightsOf(net).clone();
    step();
    const torch::Tensor expected = WeightsOf(net).cpu();
    SetWeights(net, weights);
    replicas.LoadState({saved});
    step();
    EXPECT_TRUE(WeightsOf(net).cpu().equal(expected));
  });
}

TEST(DataParallelGpuTest, BroadcastOptimizerPutsTheStateOnTheGpuOfItsRank) {
  std::vector<torch::nn::Sequential> nets = Nets(kRanks);
  RunWorld(kRanks, OnDevices(), [&](Communicator& world) {
    const at::Device gpu = Gpu(world.rank());
    torch::nn::Sequential& net = nets[world.rank()];
    net->to(gpu);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
    const auto compute = [&] {
      optimizer.zero_grad();
      net->forward(torch::ones({2, 6}, gpu)).square().sum().backward();
    };
    if (world.rank() == 0) {  // rank 0 has trained before, as if from a checkpoint
      compute();
      optimizer.step();
    }
    DataParallel replicas(world, *net);
    replicas.BroadcastOptimizer(optimizer);
    EXPECT_EQ(optimizer.state().size(), net->parameters().size());
    for (const auto& [parameter, state] : optimizer.state()) {
      EXPECT_EQ(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer().device(), gpu);
    }
    for (int step = 0; step < 3; ++step) {
      compute();
      replicas.Step(optimizer);
    }
    replicas.CheckReplicas();
  });
}

TEST(DataParallelGpuTest, QAdamLoadsAStateThatLiesOnAGpu) {
  std::vector<torch::nn::Sequential> nets = Nets(kRanks);
  RunWorld(kRanks, OnDevices(), [&](Communicator& world) {
    const at::Device gpu = Gpu(world.rank());
    torch::nn::Sequential& net = nets[world.rank()];
    net->to(gpu);
    DataParallel replicas(world, *net, {.strategy = "qadam:warmup_steps=2"});
    QAdam optimizer(replicas, net->parameters(), QAdamOptions(0.01));
    const auto step = [&] {
      optimizer.zero_grad();
      net->forward(torch::ones({2, 6}, gpu)).square().sum().backward();
      replicas.Step(optimizer);
    };
    for (int i = 0; i < 3; ++i) step();
    const std::string saved = optimizer.SaveState();
    replicas.BroadcastOptimizer(optimizer);
    EXPECT_TRUE(optimizer.frozen());
    EXPECT_TRUE(optimizer.SaveState() == saved);
    step();
    replicas.CheckReplicas();
  });
}

TEST(DataParallelGpuTest, ACommunicatorWithoutTheGpuIsRefused) {
  RunWorld(1, [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    net->to(Gpu(0));
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }),
                HasSubstr("the parameters of rank 0 are on cuda:0, and its communicator works on the CPU alone"));
  });
  RunWorld(1, OnDevices(), [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    net->to(Gpu(3));
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }), HasSubstr("are on cuda:3, and its communicator works on "
                                                                       "cuda:0"));
  });
}

TEST(DataParallelGpuTest, AModelIsOnOneDevice) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    net[0]->to(Gpu(0));
    EXPECT_THAT(ErrorOf([&] { DataParallel(world, *net); }),
                HasSubstr("parameter 2.weight is on cpu, and another one on cuda:0"));
  });
}

TEST(DataParallelGpuTest, AModelThatMovesLaterIsRefused) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    torch::nn::Sequential net = MakeNet();
    DataParallel replicas(world, *net);
    net->to(Gpu(0));
    EXPECT_THAT(ErrorOf([&] {
                  net->forward(torch::ones({2, 6}, Gpu(0))).sum().backward();
                }),
                HasSubstr("moved from cpu to cuda:0"));
  });
}

}  // namespace
}  // namespace tutti::nn
