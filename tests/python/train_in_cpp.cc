// Trains the net of tests/python/cpp_test.py by the C++ adapter, so that the test can compare weights and states:
//
//   tutti launch -n 2 -- train_in_cpp FOLDER STRATEGY FIRST LAST
//
// trains the steps FIRST to LAST - 1. Each rank reads from FOLDER its `weights` and `batches` and, unless FIRST is 0,
// the states of `strategy` and, for qadam, `optimizer`, from which it goes on; and writes the three that the training
// ends with, as `cpp_weights` and so on. The files are plain f32 values, and bytes; their names end with ".RANK".
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace {

constexpr std::int64_t kSamples = 16;
constexpr std::int64_t kInputs = 6;
constexpr std::int64_t kOutputs = 3;

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream contents;
  contents << file.rdbuf();
  return contents.str();
}

void Write(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary);
  if (!file.write(contents.data(), static_cast<std::streamsize>(contents.size())).flush()) {
    throw std::runtime_error("cannot write " + path);
  }
}

torch::Tensor Floats(std::string& bytes) {
  return torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size() / sizeof(float))});
}

void SetWeights(torch::nn::Sequential& net, const torch::Tensor& weights) {
  const torch::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (torch::Tensor parameter : net->parameters()) {
    parameter.copy_(weights.narrow(0, begin, parameter.numel()).view_as(parameter));
    begin += parameter.numel();
  }
}

std::string WeightsOf(const torch::nn::Sequential& net) {
  std::string bytes;
  for (const torch::Tensor& parameter : net->parameters()) {
    bytes.append(static_cast<const char*>(parameter.const_data_ptr()), parameter.nbytes());
  }
  return bytes;
}

// Weights and biases are groups with different options.
std::vector<torch::optim::OptimizerParamGroup> QAdamGroups(const torch::nn::Sequential& net) {
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> biases;
  for (const torch::Tensor& parameter : net->parameters())
    (parameter.dim() == 2 ? weights : biases).push_back(parameter);
  return {{weights, std::make_unique<tutti::nn::QAdamOptions>(tutti::nn::QAdamOptions(0.01).weight_decay(0.1))},
          {biases,
           std::make_unique<tutti::nn::QAdamOptions>(tutti::nn::QAdamOptions(0.02).betas(std::make_tuple(0.8, 0.99)))}};
}

void Train(const std::string& folder, const std::string& strategy, std::int64_t first, std::int64_t last) {
  torch::set_num_threads(1);
  const std::unique_ptr<tutti::Communicator> world = tutti::nn::Connect();
  const auto path = [&](const std::string& name) { return folder + "/" + name + "." + std::to_string(world->rank()); };
  std::string weights = Read(path("weights"));
  std::string batches = Read(path("batches"));
  torch::nn::Sequential net(torch::nn::Linear(kInputs, 16), torch::nn::ReLU(), torch::nn::Linear(16, kOutputs));
  SetWeights(net, Floats(weights));

  tutti::nn::DataParallel replicas(*world, *net, {.strategy = strategy});
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  tutti::nn::QAdam* qadam = nullptr;
  if (strategy.starts_with("qadam")) {
    auto made = std::make_unique<tutti::nn::QAdam>(replicas, QAdamGroups(net));
    qadam = made.get();
    optimizer = std::move(made);
  } else {
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1));
  }
  if (first > 0) {
    SetWeights(net, Floats(weights));  // the rank's own, which the constructor has overwritten by rank 0's
    if (qadam != nullptr) qadam->LoadState(Read(path("optimizer")));
    replicas.LoadState({Read(path("strategy"))});
  }
  const torch::Tensor data = Floats(batches).view({-1, kSamples, kInputs + kOutputs});
  for (std::int64_t step = first; step < last; ++step) {
    optimizer->zero_grad();
    const torch::Tensor inputs = data[step].narrow(1, 0, kInputs).contiguous();
    const torch::Tensor targets = data[step].narrow(1, kInputs, kOutputs).contiguous();
    torch::mse_loss(net->forward(inputs), targets).backward();
    replicas.Step(*optimizer);
  }
  if (strategy.starts_with("async")) replicas.Flush();  // the ranks are at different steps
  Write(path("cpp_strategy"), replicas.SaveState());
  Write(path("cpp_weights"), WeightsOf(net));
  if (qadam != nullptr) Write(path("cpp_optimizer"), qadam->SaveState());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: train_in_cpp FOLDER STRATEGY FIRST LAST\n";
    return EXIT_FAILURE;
  }
  try {
    Train(argv[1], argv[2], std::stoll(argv[3]), std::stoll(argv[4]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
