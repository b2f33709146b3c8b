// Trains, and saves a checkpoint from which any number of ranks goes on; each checkpoint has a folder of its own:
//
//   tutti launch -n 4 -- checkpoint first            # trains from the beginning
//   tutti launch -n 2 -- checkpoint second first     # goes on from `first`
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"

namespace {

// [states]
// The states of all ranks that saved, in their order.
std::vector<std::string> StatesIn(const std::string& folder) {
  std::vector<std::string> states;
  while (std::ifstream file{folder + "/state." + std::to_string(states.size()), std::ios::binary}) {
    std::ostringstream state;
    state << file.rdbuf();
    states.push_back(state.str());
  }
  return states;
}
// [states]

}  // namespace

int main(int argc, char** argv) {
  const std::string to = argc > 1 ? argv[1] : "";
  constexpr char kUsage[] =
      "usage: checkpoint TO [FROM]\n"
      "Trains, from the checkpoint in the folder FROM when it is given, and saves a checkpoint into the folder TO.\n";
  if (to == "--help" || to == "-h") {
    std::cout << kUsage;
    return 0;
  }
  if (argc < 2 || argc > 3 || to[0] == '-') {
    std::cerr << kUsage;
    return 2;
  }
  const bool resumes = argc == 3;
  const std::string from = resumes ? argv[2] : "";

  const auto world = tutti::nn::Connect();
  torch::manual_seed(1);
  const torch::Tensor inputs = torch::randn({4096, 8});
  const torch::Tensor targets = inputs.square().mean(1, /*keepdim=*/true);
  torch::nn::Sequential net(torch::nn::Linear(8, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  const auto loss_of = [&](tutti::Rank rank, int size) {
    const std::int64_t rows = inputs.size(0) / size;
    return torch::mse_loss(net->forward(inputs.narrow(0, rank * rows, rows)), targets.narrow(0, rank * rows, rows));
  };

  // [resume]
  if (resumes) torch::load(net, from + "/net.pt");  // before `net` is wrapped: loading gives weights other memory
  tutti::nn::DataParallel replicas(*world, *net, {.strategy = "low_precision_decentralized"});
  if (resumes) {
    torch::load(optimizer, from + "/optimizer.pt");
    replicas.LoadState(StatesIn(from));
  }
  // [resume]

  const double before = loss_of(0, 1).item<double>();
  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    loss_of(world->rank(), world->size()).backward();
    replicas.Step(optimizer);
  }

  // [save]
  replicas.Flush();  // all ranks have the same weights now
  std::filesystem::create_directories(to);
  if (world->rank() == 0) {
    torch::save(net, to + "/net.pt");
    torch::save(optimizer, to + "/optimizer.pt");
  }
  const std::string state = replicas.SaveState();
  std::ofstream file(to + "/state." + std::to_string(world->rank()), std::ios::binary);
  if (!file.write(state.data(), static_cast<std::streamsize>(state.size())).flush()) {
    throw std::runtime_error("rank " + std::to_string(world->rank()) + " cannot write its state to " + to);
  }
  // [save]
  if (world->rank() == 0) std::cout << "loss " << before << " before, " << loss_of(0, 1).item<double>() << " after\n";
}
