// Trains a small CNN (or a wide MLP, whose gradients are many) on Fashion-MNIST, on as many ranks as it is started on,
// kept in step by a strategy of your choice:
//
//   tutti launch -n 4 -- train_fashion_mnist --strategy bytegrad --epochs 5
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "docs/examples/fashion_mnist.h"
#include "docs/examples/progress.h"
#include "tutti/algorithm.h"
#include "tutti/torch/connect.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string strategy = "gradient_allreduce";
  std::string device = "cpu";
  std::string model = "cnn";
  std::string optimizer = "sgd";
  int epochs = 5;
  std::uint64_t seed = 1;
  std::int64_t batch = 64;
  double learning_rate = 0;  // of the optimizer
  bool decay = false;        // of the learning rate
  int threads = 1;
  std::int64_t max_steps = 0;
  std::string data = fashion_mnist::kDirectory;
  std::string json;
  std::string trace;
};

double SecondsSince(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// How many GPUs torch sees. Programs link the part of libtorch for the CPU, and the part for CUDA is loaded here,
// before torch looks for it.
int CountGpus() {
  if (!c10::impl::hasDeviceGuardImpl(torch::kCUDA) && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw CLI::ValidationError(std::string("--device cuda: this libtorch has no CUDA: ") + dlerror());
  }
  const int gpus = c10::impl::VirtualGuardImpl(torch::kCUDA).deviceCount();
  if (gpus == 0) throw CLI::ValidationError("--device cuda: torch finds no GPU; `tutti info` says what is missing");
  return gpus;
}

// The GPU of this rank: its place on its node, modulo the number of GPUs that the rank sees.
torch::Device ChooseDevice(const Options& options) {
  if (options.device == "cpu") return torch::kCPU;
  const int local_rank = tutti::nn::ValueOrThrow(tutti::IdentityFromEnvironment()).local_rank;
  return {torch::kCUDA, static_cast<torch::DeviceIndex>(local_rank % CountGpus())};
}

torch::nn::Sequential MakeNet(const std::string& model) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): reads like the picture of the net
  if (model == "mlp") {       // 20 million weights
    return Sequential(Flatten(), Linear(28 * 28, 4096), ReLU(), Linear(4096, 4096), ReLU(), Linear(4096, 10));
  }
  return Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(16, 32, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                    Linear(32 * 7 * 7, 128), ReLU(), Linear(128, 10));
}

std::unique_ptr<torch::optim::Optimizer> MakeOptimizer(const Options& options, torch::nn::Module& net,
                                                       tutti::nn::DataParallel& replicas) {
  const double rate = options.learning_rate;
  if (options.optimizer == "qadam") {  // the optimizer of the strategy qadam
    return std::make_unique<tutti::nn::QAdam>(replicas, net.parameters(), tutti::nn::QAdamOptions(rate));
  }
  if (options.optimizer == "adam") {
    return std::make_unique<torch::optim::Adam>(net.parameters(), torch::optim::AdamOptions(rate));
  }
  return std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double SecondsOf(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// One rank's part of the training.
class Trainer {
 public:
  Trainer(tutti::Communicator& world, const Options& options, torch::Device device)
      : world_(world),
        options_(options),
        device_(device),
        train_(fashion_mnist::Load(fashion_mnist::Part::kTrain, options.data).To(device)),
        test_(fashion_mnist::Load(fashion_mnist::Part::kTest, options.data).To(device)),
        net_(MakeNetOnDevice()),
        // Small buckets, since the CNN is small: the first ones travel while the convolutions are differentiated.
        replicas_(world, *net_, {.strategy = options.strategy, .bucket_bytes = 1 << 20, .first_bucket_bytes = 1 << 16}),
        optimizer_(MakeOptimizer(options, *net_, replicas_)) {
    if (options.trace.empty()) return;
    trace_.open(options.trace + "." + std::to_string(world.rank()));
    if (!trace_) throw std::runtime_error("cannot write " + options.trace);
    trace_.precision(15);
  }

  // Trains, and returns the results as a row of the quickstart's table.
  nlohmann::ordered_json Run() {
    if (world_.rank() == 0) std::printf("%s on %d ranks\n", replicas_.strategy().c_str(), world_.size());
    const Clock::time_point start = Clock::now();
    double accuracy = 0;
    double training = 0;  // seconds, evaluations not included
    nlohmann::ordered_json history;
    for (int epoch = 0; epoch < options_.epochs; ++epoch) {
      const Clock::time_point epoch_start = Clock::now();
      TrainEpoch(epoch);
      replicas_.Flush();  // one model on all ranks, whatever the strategy
      training += SecondsSince(epoch_start);
      accuracy = Accuracy();
      replicas_.CheckReplicas();
      history.push_back({{"accuracy", accuracy}, {"seconds", training}, {"wire_bytes", SumOverRanks(wire_bytes_)}});
      if (world_.rank() == 0) std::printf("epoch %d: test accuracy %.2f %%\n", epoch + 1, 100 * accuracy);
    }
    const double seconds = SecondsSince(start);
    const std::int64_t wire_bytes = SumOverRanks(wire_bytes_);
    const double n = world_.size();
    const double exact_bytes = 2 * (n - 1) * static_cast<double>(payload_bytes_);  // of all ranks, by an f32 all_reduce
    return {{"strategy", options_.strategy},
            {"ranks", world_.size()},
            {"epochs", options_.epochs},
            {"seed", options_.seed},
            {"accuracy", accuracy},
            {"seconds", seconds},
            {"wire_bytes", wire_bytes},
            {"wire_ratio", exact_bytes > 0 ? static_cast<double>(wire_bytes) / exact_bytes : 0},
            {"weights_identical", true},  // CheckReplicas has thrown otherwise
            {"steps", step_seconds_.size()},
            {"step_ms", 1000 * Median(step_seconds_)},
            {"step_bytes", SumOverRanks(last_step_bytes_)},
            {"history", history}};
  }

 private:
  torch::nn::Sequential MakeNetOnDevice() const {
    torch::manual_seed(options_.seed);
    torch::nn::Sequential net = MakeNet(options_.model);  // with the weights that the CPU draws, wherever it trains
    net->to(device_);
    return net;
  }

  std::int64_t global_batch() const { return options_.batch * world_.size(); }
  std::int64_t steps_per_epoch() const {
    const std::int64_t all = train_.size() / global_batch();
    return options_.max_steps > 0 ? std::min(all, options_.max_steps) : all;
  }

  // Lowers the learning rate in a straight line, which reaches 0 at the end of the training.
  void DecayLearningRate() {
    const double done = static_cast<double>(step_seconds_.size());
    const double all = static_cast<double>(options_.epochs * steps_per_epoch());
    for (torch::optim::OptimizerParamGroup& group : optimizer_->param_groups()) {
      group.options().set_lr(options_.learning_rate * (1 - done / all));
    }
  }

  void TrainEpoch(int epoch) {
    const std::int64_t steps = steps_per_epoch();
    // All ranks draw the same order of the images, and each takes its part of every batch.
    auto generator = at::detail::createCPUGenerator(options_.seed * 1000 + static_cast<std::uint64_t>(epoch));
    const torch::Tensor order = torch::randperm(train_.size(), generator, torch::kInt64).to(device_);

    Progress progress("epoch " + std::to_string(epoch + 1) + "/" + std::to_string(options_.epochs),
                      world_.rank() == 0 ? steps : 0);
    const Clock::time_point start = Clock::now();
    tutti::SyncStatistics exchanged;
    double loss = 0;
    net_->train();
    for (std::int64_t step = 0; step < steps; ++step) {
      const double step_start = SecondsOf(CLOCK_MONOTONIC);
      if (options_.decay) DecayLearningRate();
      const std::int64_t begin = step * global_batch() + world_.rank() * options_.batch;
      const auto [images, labels] = train_.Batch(order.narrow(0, begin, options_.batch));
      optimizer_->zero_grad();
      const torch::Tensor batch_loss = torch::nn::functional::cross_entropy(net_->forward(images), labels);
      batch_loss.backward();  // gradients are synchronized when it returns
      replicas_.Step(*optimizer_);
      const double step_end = SecondsOf(CLOCK_MONOTONIC);
      step_seconds_.push_back(step_end - step_start);
      if (trace_.is_open()) {
        trace_ << step_start << " " << step_end << " " << SecondsOf(CLOCK_THREAD_CPUTIME_ID) << " "
               << SecondsOf(CLOCK_PROCESS_CPUTIME_ID) << std::endl;
      }

      loss = step == 0 ? batch_loss.item<double>() : 0.95 * loss + 0.05 * batch_loss.item<double>();
      const tutti::SyncStatistics last = replicas_.TakeStatistics();
      exchanged.communication += last.communication;
      exchanged.exposed += last.exposed;
      last_step_bytes_ = last.wire_bytes;
      wire_bytes_ += last.wire_bytes;
      payload_bytes_ += last.payload_bytes;
      char details[160];
      std::snprintf(details, sizeof(details),
                    "%6.0f samples/s, loss %.3f, %.1f MB sent by this rank, %2.0f %% of communication hidden",
                    static_cast<double>((step + 1) * global_batch()) / SecondsSince(start), loss,
                    static_cast<double>(wire_bytes_) / 1e6, 100 * exchanged.hidden());
      progress.Update(step + 1, details);
    }
  }

  // Share of the test images that are classified rightly; every rank looks at its part of them.
  double Accuracy() {
    torch::NoGradGuard no_grad;
    net_->eval();
    const tutti::Range mine = tutti::ChunkOf(test_.size(), world_.size(), world_.rank());
    std::int64_t right = 0;
    for (const torch::Tensor& indices : torch::arange(mine.begin, mine.begin + mine.count, device_).split(500)) {
      const auto [images, labels] = test_.Batch(indices);
      right += net_->forward(images).argmax(1).eq(labels).sum().item<std::int64_t>();
    }
    return static_cast<double>(SumOverRanks(right)) / static_cast<double>(test_.size());
  }

  std::int64_t SumOverRanks(std::int64_t value) {
    std::int64_t sum = 0;
    tutti::nn::ThrowIfError(
        world_.AllReduce(&value, &sum, 1, tutti::DType::kI64, tutti::ReduceOp::kSum, {.caller_drives = true}).Wait());
    return sum;
  }

  tutti::Communicator& world_;
  const Options options_;
  const torch::Device device_;
  const fashion_mnist::Images train_;
  const fashion_mnist::Images test_;
  torch::nn::Sequential net_;
  tutti::nn::DataParallel replicas_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::int64_t wire_bytes_ = 0;  // of this rank
  std::int64_t last_step_bytes_ = 0;
  std::int64_t payload_bytes_ = 0;  // of this rank, before compression
  std::vector<double> step_seconds_;
  std::ofstream trace_;
};

void Train(const Options& options, torch::Device device) {
  torch::set_num_threads(options.threads);
  const c10::DeviceGuard on_device(device);
  tutti::CommunicatorOptions where;
  if (device.is_cuda()) where.cuda_device = device.index();
  const auto world = tutti::nn::Connect(where);
  const bool writes = world->rank() == 0 && !options.json.empty();
  // Opened before the training, so that a wrong path costs no training; what an older file holds stays until the end.
  if (writes && !std::ofstream(options.json, std::ios::app)) throw std::runtime_error("cannot write " + options.json);
  const nlohmann::ordered_json row = Trainer(*world, options, device).Run();
  if (world->rank() != 0) return;
  std::printf("accuracy %.2f %%, %.1f s, %.1f MB on the wire by all ranks (%.3f of f32), equal weights on all ranks\n",
              100 * row["accuracy"].get<double>(), row["seconds"].get<double>(), row["wire_bytes"].get<double>() / 1e6,
              row["wire_ratio"].get<double>());
  if (!writes) return;
  std::ofstream file(options.json);
  file << row.dump() << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
}

// The error of a strategy name; empty when the name is right.
std::string CheckStrategy(const std::string& name) {
  return std::string(tutti::ParseStrategy(name).status().message());
}

// A number from `low` to `high`. CLI::Range would say of a text that is no number that its value is out of range.
CLI::Validator NumberWithin(double low, double high) {
  const std::string range = (std::ostringstream() << low << " to " << high).str();
  return {[low, high, range](const std::string& text) -> std::string {
            char* end = nullptr;
            const double number = std::strtod(text.c_str(), &end);
            const bool is_number = end != text.c_str() && *end == '\0';
            return is_number && number >= low && number <= high ? "" : "expected " + range + ", found " + text;
          },
          "in " + range};
}

// All ranks have the same flags, so rank 0 alone says what is wrong with them; the others leave after it, because a
// launcher ends all ranks when the first one fails.
int SayOnce(const CLI::App& app, const CLI::ParseError& error) {
  const auto world = tutti::nn::Connect();
  if (world->rank() == 0) app.exit(error);
  tutti::nn::ThrowIfError(world->Barrier().Wait());
  return error.get_exit_code() == 0 ? 0 : 2;  // 0 after --help; 2 is what most programs return for wrong flags
}

int Run(int argc, char** argv) {
  Options options;
  torch::Device device = torch::kCPU;
  CLI::App app("Trains a small CNN on Fashion-MNIST on the ranks of `tutti launch`, torchrun, mpirun or srun");
  app.option_defaults()->always_capture_default();
  app.add_option("--strategy", options.strategy, "How replicas are kept in step: NAME or NAME:option=value,…")
      ->check(CheckStrategy);
  app.add_option("--device", options.device, "cpu, or cuda: each rank trains on a GPU of its own")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--model", options.model, "cnn, or mlp: 20 million weights")->check(CLI::IsMember({"cnn", "mlp"}));
  app.add_option("--optimizer", options.optimizer, "sgd (momentum 0.9), adam, or qadam for the strategy qadam")
      ->check(CLI::IsMember({"sgd", "adam", "qadam"}));
  app.add_option("--epochs", options.epochs, "Passes over the training images")->check(NumberWithin(1, 1e9));
  app.add_option("--seed", options.seed, "Of the initial weights and the order of images")
      ->check(NumberWithin(0, 1e18));
  app.add_option("--batch", options.batch, "Images per rank and step")->check(NumberWithin(1, 10000));
  app.add_option("--lr", options.learning_rate, "Learning rate; 0: 0.05 with sgd, else 0.001")
      ->check(NumberWithin(0, 1e9));
  app.add_flag("--decay", options.decay, "Let the learning rate fall to 0 in a straight line");
  app.add_option("--threads", options.threads, "Torch's threads per rank")->check(NumberWithin(1, 4096));
  app.add_option("--max-steps", options.max_steps, "Steps per epoch at most; 0: all images")
      ->check(NumberWithin(0, 1e9));
  app.add_option("--data", options.data, "Directory of the data set");
  app.add_option("--json", options.json, "File for the result");
  app.add_option(
      "--trace", options.trace,
      "Every rank writes to FILE.RANK, after each step: when it began and ended (CLOCK_MONOTONIC), and the CPU "
      "time of its thread and of the process, in seconds");
  try {
    app.parse(argc, argv);
    const bool is_qadam = tutti::ParseStrategy(options.strategy)->algorithm->name == "qadam";
    if (is_qadam != (options.optimizer == "qadam")) {
      throw CLI::ValidationError("--strategy qadam and --optimizer qadam go together, neither without the other");
    }
    device = ChooseDevice(options);
  } catch (const CLI::ParseError& error) {
    return SayOnce(app, error);
  }
  if (options.learning_rate == 0) options.learning_rate = options.optimizer == "sgd" ? 0.05 : 0.001;
  Train(options, device);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // progress shows through pipes, too
  try {
    return Run(argc, argv);
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "%s\n", error.what_without_backtrace());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
