// A net that trains in a moment, for ranks that are threads.
#ifndef TUTTI_TESTS_TORCH_SMALL_NET_H_
#define TUTTI_TESTS_TORCH_SMALL_NET_H_

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/torch/data_parallel.h"

namespace tutti::nn {

inline torch::nn::Sequential MakeNet() {
  return torch::nn::Sequential(torch::nn::Linear(6, 16), torch::nn::ReLU(), torch::nn::Linear(16, 3));
}

// Makes a net for each rank, before the ranks start, since torch's random numbers belong to the process.
inline std::vector<torch::nn::Sequential> Nets(int size) {
  torch::set_num_threads(1);
  std::vector<torch::nn::Sequential> nets;
  for (Rank rank = 0; rank < size; ++rank) nets.push_back(MakeNet());
  return nets;
}

struct Data {
  torch::Tensor inputs = (torch::manual_seed(7), torch::randn({32, 6}));
  torch::Tensor targets = torch::randn({32, 3});

  torch::Tensor Loss(torch::nn::Sequential& net, Rank rank, int size) const {
    const std::int64_t n = inputs.size(0) / size;
    return torch::mse_loss(net->forward(inputs.narrow(0, rank * n, n)), targets.narrow(0, rank * n, n));
  }
};

inline void Train(torch::nn::Sequential& net, DataParallel& replicas, torch::optim::Optimizer& optimizer,
                  const Data& data, Communicator& world, int steps) {
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    data.Loss(net, world.rank(), world.size()).backward();
    replicas.Step(optimizer);
  }
}

inline torch::Tensor WeightsOf(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& parameter : net->parameters()) parts.push_back(parameter.detach().flatten());
  return torch::cat(parts);
}

inline void SetWeights(torch::nn::Sequential& net, const torch::Tensor& weights) {
  torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (torch::Tensor parameter : net->parameters()) {
    parameter.copy_(weights.narrow(0, begin, parameter.numel()).view_as(parameter));
    begin += parameter.numel();
  }
}

// Two branches, of which a step may use one alone.
struct Branches : torch::nn::Module {
  torch::nn::Linear left = register_module("left", torch::nn::Linear(4, 2));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(4, 2));
};

inline double LargestDifference(torch::nn::Module& a, torch::nn::Module& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.parameters().size(); ++i) {
    largest = std::max(largest, (a.parameters()[i] - b.parameters()[i]).abs().max().item<double>());
  }
  return largest;
}

}  // namespace tutti::nn

#endif  // TUTTI_TESTS_TORCH_SMALL_NET_H_
