// A training loop with what real ones have: small batches that are accumulated, a head that not every step uses,
// BatchNorm, ranks with unequal data, an evaluation, and a checkpoint from which the next run goes on, with the same
// strategy or another one:
//
//   tutti launch -n 4 -- training checkpoint decentralized
//   tutti launch -n 4 -- training checkpoint bytegrad        # goes on
#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"

namespace {

constexpr std::int64_t kBatch = 16;
constexpr std::int64_t kParts = 4;  // small batches that make one step

struct Net : torch::nn::Module {
  torch::Tensor Loss(const torch::Tensor& inputs, bool with_maximum) {
    const torch::Tensor features = body->forward(inputs);
    torch::Tensor loss = torch::mse_loss(sum->forward(features), inputs.sum(1, /*keepdim=*/true));
    if (with_maximum) loss = loss + torch::mse_loss(maximum->forward(features), inputs.amax(1, /*keepdim=*/true));
    return loss;
  }

  torch::nn::Sequential body = register_module(
      "body", torch::nn::Sequential(torch::nn::Linear(10, 32), torch::nn::BatchNorm1d(32), torch::nn::ReLU()));
  torch::nn::Linear sum = register_module("sum", torch::nn::Linear(32, 1));
  torch::nn::Linear maximum = register_module("maximum", torch::nn::Linear(32, 1));
};

}  // namespace

int main(int argc, char** argv) {
  const std::string usage = "usage: training FOLDER STRATEGY\nTrains from the checkpoint in FOLDER, if there is one.\n";
  if (argc != 3) {
    std::cerr << usage;
    return 2;
  }
  const std::string folder = argv[1];
  const std::string strategy = argv[2];
  const auto world = tutti::nn::Connect();
  torch::manual_seed(1);
  const auto net = std::make_shared<Net>();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));

  // [resume]
  if (std::filesystem::exists(folder + "/optimizer.pt")) {  // saved by any strategy; rank 0 alone may have the files
    torch::load(net, folder + "/net.pt");                   // before `net` is wrapped
    torch::load(optimizer, folder + "/optimizer.pt");
  }
  tutti::nn::DataParallel replicas(*world, *net, {.strategy = strategy, .allow_unused = true});
  replicas.BroadcastOptimizer(optimizer);  // all ranks have the weights of rank 0 now, and the state of its optimizer
  // [resume]

  torch::manual_seed(1000 + world->rank());
  const torch::Tensor data = torch::randn({6000 + 500 * world->rank(), 10});  // not equally many rows on every rank

  // [steps]
  std::int64_t steps = data.size(0) / (kBatch * kParts);
  const absl::Status agreed =
      world->AllReduce(&steps, &steps, 1, tutti::DType::kI64, tutti::ReduceOp::kMin).Wait();  // the fewest of any rank
  TORCH_CHECK(agreed.ok(), agreed.ToString());
  // [steps]
  for (std::int64_t step = 0; step < steps; ++step) {
    // [accumulate]
    optimizer.zero_grad();
    for (std::int64_t part = 0; part < kParts; ++part) {
      std::optional<tutti::nn::DataParallel::NoSync> no_sync;
      if (part + 1 < kParts) no_sync.emplace(replicas);
      const torch::Tensor inputs = data.narrow(0, (step * kParts + part) * kBatch, kBatch);
      (net->Loss(inputs, /*with_maximum=*/(step + world->rank()) % 3 == 0) / kParts).backward();
    }
    replicas.Step(optimizer);
    // [accumulate]
  }
  // [share]
  const tutti::SyncStatistics exchanged = replicas.TakeStatistics();  // since the last call
  if (world->rank() == 0) {
    const auto a_step = [&](absl::Duration all) {
      return absl::ToDoubleMilliseconds(all) / static_cast<double>(exchanged.steps);
    };
    std::cout << "ms of a step: waited " << a_step(exchanged.exposed) << ", engine " << a_step(exchanged.engine_cpu)
              << ", of these waiting " << a_step(exchanged.engine_waiting) << "\n";
  }
  // [share]

  // [evaluate]
  replicas.Flush();          // all ranks have the same weights and the same statistics of BatchNorm now
  replicas.CheckReplicas();  // throws otherwise
  net->eval();
  double total[] = {0, static_cast<double>(data.size(0))};
  {
    const torch::NoGradGuard no_grad;
    total[0] = net->Loss(data, /*with_maximum=*/false).item<double>() * total[1];
  }
  const absl::Status summed = world->AllReduce(total, total, 2, tutti::DType::kF64, tutti::ReduceOp::kSum).Wait();
  TORCH_CHECK(summed.ok(), summed.ToString());  // a sum, because ranks have unequal shares
  net->train();
  // [evaluate]
  // [save]
  if (world->rank() == 0) {  // after Flush() the weights of one rank are those of all
    std::filesystem::create_directories(folder);
    torch::save(net, folder + "/net.pt");
    torch::save(optimizer, folder + "/optimizer.pt");
    std::cout << "loss " << total[0] / total[1] << " on " << world->size() << " ranks\n";
  }
  // [save]
}
