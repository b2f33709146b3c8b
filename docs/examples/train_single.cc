// A program that trains on one process. train_distributed.cc is the same program on any number of ranks.
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({4096, 8});
  const torch::Tensor targets = inputs.square().mean(1, /*keepdim=*/true);

  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::Adam optimizer(net->parameters(), 0.01);

  torch::data::samplers::RandomSampler sampler(inputs.size(0));
  for (int epoch = 0; epoch < 5; ++epoch) {
    sampler.reset();
    double loss_sum = 0;
    while (auto batch = sampler.next(64)) {
      const torch::Tensor rows = torch::tensor(std::vector<std::int64_t>(batch->begin(), batch->end()));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(net->forward(inputs.index({rows})), targets.index({rows}));
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
    }
    std::cout << "epoch " << epoch << ": loss " << loss_sum / 64 << "\n";
  }
}
