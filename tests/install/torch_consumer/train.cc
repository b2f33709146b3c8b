// A program outside Tutti's tree that trains a step.
#include <torch/torch.h>

#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"

int main() {
  const auto world = tutti::nn::Connect();
  torch::nn::Linear net(4, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  tutti::nn::DataParallel replicas(*world, *net, {.strategy = "bytegrad"});
  net->forward(torch::ones({2, 4})).sum().backward();
  replicas.Step(optimizer);
}
