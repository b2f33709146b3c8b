// train_single.cc on any number of ranks: tutti launch -n 4 -- train_distributed
#include <torch/torch.h>

#include <iostream>

#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"

int main() {
  const auto world = tutti::nn::Connect();
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({4096, 8});
  const torch::Tensor targets = inputs.square().mean(1, /*keepdim=*/true);

  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  tutti::nn::DataParallel replicas(*world, *net, {.strategy = "bytegrad"});

  torch::data::samplers::DistributedRandomSampler sampler(inputs.size(0), world->size(), world->rank());
  for (int epoch = 0; epoch < 5; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    double loss_sum = 0;
    while (auto batch = sampler.next(64 / world->size())) {
      const torch::Tensor rows = torch::tensor(std::vector<std::int64_t>(batch->begin(), batch->end()));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(net->forward(inputs.index({rows})), targets.index({rows}));
      loss.backward();
      replicas.Step(optimizer);
      loss_sum += loss.item<double>();
    }
    if (world->rank() == 0) std::cout << "epoch " << epoch << ": loss " << loss_sum / 64 << "\n";
  }
}
