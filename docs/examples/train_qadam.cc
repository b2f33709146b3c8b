// Training with qadam, which brings its own optimizer: tutti launch -n 4 -- train_qadam
#include <torch/torch.h>

#include <iostream>

#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

int main() {
  const auto world = tutti::nn::Connect();
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({4096, 8});
  const torch::Tensor targets = inputs.square().mean(1, /*keepdim=*/true);
  const std::int64_t rows = inputs.size(0) / world->size();
  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));

  // [qadam]
  tutti::nn::DataParallel replicas(*world, *net, {.strategy = "qadam:warmup_steps=50"});
  tutti::nn::QAdam optimizer(replicas, net->parameters(), tutti::nn::QAdamOptions(0.01));
  // [qadam]

  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    const torch::Tensor outputs = net->forward(inputs.narrow(0, world->rank() * rows, rows));
    const torch::Tensor loss = torch::mse_loss(outputs, targets.narrow(0, world->rank() * rows, rows));
    loss.backward();
    optimizer.step();
    if (world->rank() == 0 && step % 25 == 24) {
      std::cout << "step " << step << ": loss " << loss.item<double>() << ", " << replicas.TakeStatistics().wire_bytes
                << " bytes sent" << (optimizer.frozen() ? ", momentum\n" : ", gradients\n");
    }
  }
}
