// Trainings by a synchronizer whose gradients, weights and states lie on a GPU: the weights are those of the same
// training in memory of the host.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"

namespace tutti::gpu {
namespace {

constexpr std::int64_t kCounts[] = {300, 7, 0, 20011, 1};
constexpr int kParameters = 5;
constexpr int kSteps = 6;

// Small multiples of 1/8: sums of them are exact, in bf16, too, and so are averages of two.
std::vector<float> GradientOf(Rank rank, int parameter, int step) {
  std::vector<float> values(static_cast<std::size_t>(kCounts[parameter]));
  for (std::size_t k = 0; k < values.size(); ++k) {
    values[k] = static_cast<float>((rank + 1) * (parameter + 1) + step + static_cast<int>(k % 5)) * 0.125f;
  }
  return values;
}

// The replica of one rank, on the host or on its GPU.
class Replica {
 public:
  Replica(CheckedRank& rank, MemoryKind kind) : rank_(rank), kind_(kind), stream_(rank.device) {
    for (const std::int64_t count : kCounts) {
      weights_.emplace_back(static_cast<std::size_t>(count), 1.0f);
      gradients_.emplace_back(static_cast<std::size_t>(count), 0.0f);
      if (!on_gpu()) continue;
      weights_on_gpu_.push_back(std::make_unique<RankMemory>(rank.device, 4 * count));
      gradients_on_gpu_.push_back(std::make_unique<RankMemory>(rank.device, 4 * count));
      Copy(weights_on_gpu_.back()->data(), weights_.back().data(), 4 * count);
    }
    stream_.Synchronize();
  }
  ~Replica() { stream_.Synchronize(); }

  // Collective.
  absl::Status Begin(const std::string& strategy) {
    std::vector<Parameter> parameters;
    std::vector<QAdam::Weights> all_weights;
    for (int i = 0; i < kParameters; ++i) {
      parameters.push_back({.name = absl::StrCat("w", i),
                            .count = kCounts[i],
                            .shape = absl::StrCat(kCounts[i]),
                            .weights = Weights(i)});
      all_weights.push_back({.data = Weights(i)});
    }
    SynchronizerOptions options = {.strategy = strategy, .bucket_bytes = 1500, .first_bucket_bytes = 64};
    options.memory = kind_;
    absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(rank_.comm, parameters, options);
    if (!made.ok()) return made.status();
    synchronizer_ = *std::move(made);
    if (on_gpu()) synchronizer_->SetStream(stream_.get());
    if (!absl::StartsWith(strategy, "qadam")) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<QAdam>> optimizer = QAdam::Create(*synchronizer_, all_weights, {{.lr = 0.125}});
    if (optimizer.ok()) optimizer_ = *std::move(optimizer);
    return optimizer.status();
  }

  absl::Status Step(int step) {
    absl::Status status = synchronizer_->BeginForward();
    status.Update(synchronizer_->BeginBackward());
    for (int i = kParameters - 1; i >= 0 && status.ok(); --i) {
      gradients_[static_cast<std::size_t>(i)] = GradientOf(rank_.rank(), i, step);
      Copy(Gradient(i), gradients_[static_cast<std::size_t>(i)].data(), 4 * kCounts[i]);
      synchronizer_->MarkReady(i);
    }
    status.Update(synchronizer_->FinishBackward());
    status.Update(synchronizer_->BeforeStep());
    if (!status.ok()) return status;
    if (optimizer_ != nullptr) {
      status = optimizer_->Step();
    } else {
      Descend();
    }
    status.Update(synchronizer_->AfterStep());
    return status;
  }

  // All weights, once the GPU has them.
  std::vector<std::byte> Result() {
    std::vector<std::byte> all;
    for (int i = 0; i < kParameters; ++i) {
      std::vector<std::byte> bytes(static_cast<std::size_t>(4 * kCounts[i]));
      Copy(bytes.data(), Weights(i), 4 * kCounts[i]);
      stream_.Synchronize();
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  Synchronizer& synchronizer() { return *synchronizer_; }

 private:
  bool on_gpu() const { return kind_ == MemoryKind::kDevice; }
  void* Weights(int i) {
    const auto at = static_cast<std::size_t>(i);
    return on_gpu() ? static_cast<void*>(weights_on_gpu_[at]->data()) : weights_[at].data();
  }
  void* Gradient(int i) {
    const auto at = static_cast<std::size_t>(i);
    if (const std::shared_ptr<void> view = synchronizer_->GradientView(i)) return view.get();
    return on_gpu() ? static_cast<void*>(gradients_on_gpu_[at]->data()) : gradients_[at].data();
  }
  // In the order of the stream; on the host at once.
  void Copy(void* to, const void* from, std::int64_t bytes) {
    if (to == from || bytes == 0) return;
    if (!on_gpu()) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      return;
    }
    const CudaRuntime& cuda = rank_.cuda();
    Require(cuda, cuda.copy_async(to, from, static_cast<std::size_t>(bytes), stream_.get()), "copy_async");
  }
  // weights - gradient / 2, computed on the host.
  void Descend() {
    for (int i = 0; i < kParameters; ++i) {
      std::vector<float>& weights = weights_[static_cast<std::size_t>(i)];
      std::vector<float> gradient(weights.size());
      Copy(gradient.data(), Gradient(i), 4 * kCounts[i]);
      Copy(weights.data(), Weights(i), 4 * kCounts[i]);
      stream_.Synchronize();
      for (std::size_t k = 0; k < weights.size(); ++k) weights[k] -= 0.5f * gradient[k];
      Copy(Weights(i), weights.data(), 4 * kCounts[i]);
      stream_.Synchronize();
    }
  }

  CheckedRank& rank_;
  const MemoryKind kind_;
  RankStream stream_;
  std::vector<std::vector<float>> weights_;    // on the host; of a GPU, what was read last
  std::vector<std::vector<float>> gradients_;  // where the synchronizer has no view
  std::vector<std::unique_ptr<RankMemory>> weights_on_gpu_;
  std::vector<std::unique_ptr<RankMemory>> gradients_on_gpu_;
  std::unique_ptr<Synchronizer> synchronizer_;
  std::unique_ptr<QAdam> optimizer_;
};

struct Trained {
  std::vector<std::byte> weights = {};
  std::string state;
};

absl::StatusOr<Trained> Train(CheckedRank& rank, const std::string& strategy, MemoryKind kind) {
  Replica replica(rank, kind);
  if (absl::Status status = replica.Begin(strategy); !status.ok()) return status;
  for (int step = 0; step < kSteps; ++step) {
    if (absl::Status status = replica.Step(step); !status.ok()) return status;
  }
  Trained trained = {.state = replica.synchronizer().SaveState()};
  if (absl::Status status = replica.synchronizer().Flush(); !status.ok()) return status;
  trained.weights = replica.Result();
  return trained;
}

absl::Status EveryTraining(CheckedRank& rank) {
  for (const char* const strategy : {"gradient_allreduce", "gradient_allreduce:codec=bf16", "bytegrad",
                                     "bytegrad:error_feedback=true", "qadam:warmup_steps=2", "decentralized",
                                     "decentralized:peer_selection_mode=shift_one", "low_precision_decentralized"}) {
    const absl::StatusOr<Trained> on_host = Train(rank, strategy, MemoryKind::kHost);
    if (!on_host.ok()) return on_host.status();
    const absl::StatusOr<Trained> on_gpu = Train(rank, strategy, MemoryKind::kDevice);
    if (!on_gpu.ok())
      return absl::Status(on_gpu.status().code(), absl::StrCat(strategy, ": ", on_gpu.status().message()));
    float first = 1;
    std::memcpy(&first, on_gpu->weights.data(), sizeof first);
    if (first == 1) return absl::DataLossError(absl::StrCat(strategy, ": the weights have not changed"));
    if (on_gpu->weights != on_host->weights) return absl::DataLossError(absl::StrCat(strategy, ": other weights"));
    if (on_gpu->state != on_host->state) return absl::DataLossError(absl::StrCat(strategy, ": another state"));
  }
  return absl::OkStatus();
}

// Averages in the background come at their own pace; after Flush all ranks have the same weights.
absl::Status TrainingInTheBackground(CheckedRank& rank) {
  Replica replica(rank, MemoryKind::kDevice);
  if (absl::Status status = replica.Begin("async:sync_interval_ms=1,warmup_steps=2"); !status.ok()) return status;
  for (int step = 0; step < 30; ++step) {
    if (absl::Status status = replica.Step(step); !status.ok()) return status;
  }
  replica.synchronizer().Pause();
  if (absl::Status status = replica.synchronizer().Flush(); !status.ok()) return status;
  return CheckEqualOnAllRanks(rank, replica.Result());
}

}  // namespace

std::vector<RankCheck> TrainingChecks() {
  return {{.name = "training",
           .summary = "trainings by every strategy that steps together, against the weights of the host",
           .sizes = {1, 2},
           .timeout = absl::Seconds(90),
           .run = EveryTraining},
          {.name = "background",
           .summary = "a training whose weights are averaged in the background",
           .sizes = {2, 3},
           .timeout = absl::Seconds(60),
           .run = TrainingInTheBackground}};
}

}  // namespace tutti::gpu
