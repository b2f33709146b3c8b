// A net with buffers: statistics that every rank computes from its own samples.
#ifndef TUTTI_TESTS_TORCH_NORMALIZED_H_
#define TUTTI_TESTS_TORCH_NORMALIZED_H_

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "tutti/torch/data_parallel.h"

namespace tutti::nn {

struct Normalized : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return linear->forward(norm->forward(x)); }

  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
};

// Makes nets for two ranks, before the ranks start, since torch's random numbers belong to the process.
inline std::vector<std::shared_ptr<Normalized>> TwoNormalized() {
  torch::set_num_threads(1);
  return {std::make_shared<Normalized>(), std::make_shared<Normalized>()};
}

}  // namespace tutti::nn

#endif  // TUTTI_TESTS_TORCH_NORMALIZED_H_
