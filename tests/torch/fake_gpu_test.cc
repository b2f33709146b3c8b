#include "tests/torch/fake_gpu.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/torch/small_net.h"

namespace tutti {
namespace {

at::TensorOptions OnGpu(int device) { return at::TensorOptions(Gpu(device)).dtype(at::kFloat); }

TEST(FakeGpuTest, TensorsGoToADeviceAndBack) {
  const at::Tensor host = torch::arange(6, at::kFloat).view({2, 3});
  const at::Tensor gpu = host.to(Gpu(3));
  EXPECT_EQ(gpu.device(), Gpu(3));
  EXPECT_TRUE((gpu.t() * 2 + 1).sum(0).cpu().equal((host.t() * 2 + 1).sum(0)));
  EXPECT_TRUE(gpu.to(Gpu(1)).cpu().equal(host));
  EXPECT_EQ(gpu.sum().item<float>(), 15);
  EXPECT_TRUE(torch::cat({gpu, gpu.slice(1, 1)}, 1).cpu().equal(torch::cat({host, host.slice(1, 1)}, 1)));
}

TEST(FakeGpuTest, OperatorsInPlaceRunInTheOrderOfTheCurrentStream) {
  const at::Tensor tensor = torch::zeros({4}, OnGpu(0));
  StreamGate gate(0);
  tensor.add_(1);
  tensor.mul_(3);
  const at::Tensor other = torch::empty({4}, OnGpu(0)).copy_(tensor);
  EXPECT_FALSE(CurrentStream(0).query());
  gate.Open();
  EXPECT_TRUE(other.cpu().equal(torch::full({4}, 3.0F)));
}

TEST(FakeGpuTest, AStreamThatDoesNotWaitSeesOldValues) {
  const at::Tensor tensor = torch::zeros({4}, OnGpu(0));
  const c10::Stream other = AnotherStream(0);
  CurrentStream(0).synchronize();
  StreamGate gate(0);
  tensor.fill_(7);
  c10::Event event(at::kCUDA);
  event.record(CurrentStream(0));
  const c10::StreamGuard guard(other);
  EXPECT_TRUE(tensor.cpu().equal(torch::zeros({4})));
  gate.Open();
  event.block(other);
  EXPECT_TRUE(tensor.cpu().equal(torch::full({4}, 7.0F)));
}

TEST(FakeGpuTest, FreedMemoryIsOverwrittenAfterTheStreamsThatTorchKnows) {
  const c10::Stream other = AnotherStream(0);
  at::Tensor tensor = torch::ones({4}, OnGpu(0));
  at::Tensor result;
  CurrentStream(0).synchronize();
  {
    const c10::StreamGuard guard(other);
    result = torch::zeros({4}, OnGpu(0));
    StreamGate gate(0);
    result.copy_(tensor);
    tensor.record_stream(other);
    tensor = at::Tensor();
    gate.Open();
    EXPECT_TRUE(result.cpu().equal(torch::ones({4})));
  }
  CurrentStream(0).synchronize();
}

TEST(FakeGpuTest, ANetTrainsAsOnTheCpu) {
  torch::manual_seed(3);
  std::vector<torch::nn::Sequential> nets;
  for (int i = 0; i < 2; ++i) {
    nets.emplace_back(torch::nn::Conv2d(1, 2, 3), torch::nn::ReLU(), torch::nn::Flatten(), torch::nn::Linear(32, 3));
  }
  nn::SetWeights(nets[1], nn::WeightsOf(nets[0]));
  nets[1]->to(Gpu(2));
  const at::Tensor inputs = torch::randn({4, 1, 6, 6});
  const at::Tensor targets = torch::randn({4, 3});
  for (int i = 0; i < 2; ++i) {
    const at::Device device = i == 0 ? at::Device(at::kCPU) : Gpu(2);
    torch::optim::Adam optimizer(nets[i]->parameters(), torch::optim::AdamOptions(0.1));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      torch::mse_loss(nets[i]->forward(inputs.to(device)), targets.to(device)).backward();
      optimizer.step();
    }
  }
  // Convolutions of the CPU are not those of GPUs: they round otherwise.
  const at::Tensor difference = nn::WeightsOf(nets[1]).cpu() - nn::WeightsOf(nets[0]);
  EXPECT_LT(difference.abs().max().item<float>(), 1e-4);
}

}  // namespace
}  // namespace tutti
