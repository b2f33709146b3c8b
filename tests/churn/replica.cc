#include "tests/churn/replica.h"

#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tutti::churn {
namespace {

// The elements of the parameters. The parameters make three buckets: two that every codec encodes, one too small for
// some codecs.
constexpr std::array<std::int64_t, 5> kCounts = {3000, 3, 1201, 64, 2500};
constexpr std::int64_t kBucketBytes = 12'000;
constexpr std::int64_t kFirstBucketBytes = 4'000;
// A multiple of all numbers of ranks, so that averages are integers.
constexpr int kUnit = 60;
constexpr int kValues = 13;
constexpr float kLargest = kUnit * (kValues - 1);

constexpr TriedStrategy kStrategies[] = {
    {"gradient_allreduce", 0},
    {"gradient_allreduce:codec=bf16", 0.02},
    {"bytegrad", 0.05},
    {"bytegrad:error_feedback=true", 0.1},
    {"bytegrad:codec=fp16", 0.01},
    {"bytegrad:codec=bf16", 0.02},
    {"bytegrad:codec=uint8_block,block=512", 0.05},
    {"bytegrad:codec=uint4_block", 0.3},
    {"bytegrad:codec=sign,error_feedback=true", -1},
    {"bytegrad:codec=topk", -1},
    {"decentralized", 0.001},
    {"decentralized:peer_selection_mode=one_peer_exponential", 0.001},
    {"low_precision_decentralized", 0.2},
    {"async:sync_interval_ms=1", 0.01},
    {"async:sync_interval_ms=2,warmup_steps=1", 0.01},
};

}  // namespace

absl::Span<const TriedStrategy> TriedStrategies() { return kStrategies; }

float Replica::Gradient(Rank rank, int parameter, std::int64_t i) const {
  return static_cast<float>(kUnit * ((rank * 5 + parameter + i * 3 + salt_) % kValues));
}

float Replica::AverageGradient(int parameter, std::int64_t i) const {
  float sum = 0;
  for (Rank rank = 0; rank < communicator_.size(); ++rank) sum += Gradient(rank, parameter, i);
  return sum / static_cast<float>(communicator_.size());
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Make(Communicator& communicator, const TriedStrategy& strategy,
                                                       int salt) {
  std::unique_ptr<Replica> replica(new Replica(communicator, strategy, salt));
  std::vector<Parameter> parameters;
  for (const std::int64_t count : kCounts) {
    const int p = static_cast<int>(parameters.size());
    std::vector<float>& weights = replica->weights_.emplace_back(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) weights[static_cast<std::size_t>(i)] = replica->AverageGradient(p, i);
    parameters.push_back(
        {.name = absl::StrCat("p", p), .count = count, .shape = absl::StrCat(count), .weights = weights.data()});
  }
  absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(
      communicator, std::move(parameters),
      {.strategy = std::string(strategy.name), .bucket_bytes = kBucketBytes, .first_bucket_bytes = kFirstBucketBytes});
  if (!made.ok()) return made.status();
  replica->synchronizer_ = *std::move(made);
  return replica;
}

absl::Status Replica::Step() {
  Synchronizer& sync = *synchronizer_;
  if (absl::Status status = sync.BeginForward(); !status.ok()) return status;
  if (absl::Status status = sync.BeginBackward(); !status.ok()) return status;
  for (int p = static_cast<int>(kCounts.size()) - 1; p >= 0; --p) {
    if (const std::shared_ptr<void> view = sync.GradientView(p); view != nullptr) {
      auto* const gradient = static_cast<float*>(view.get());
      const std::int64_t count = kCounts[static_cast<std::size_t>(p)];
      for (std::int64_t i = 0; i < count; ++i) gradient[i] = Gradient(communicator_.rank(), p, i);
    }
    sync.MarkReady(p);
  }
  if (absl::Status status = sync.FinishBackward(); !status.ok()) return status;
  if (absl::Status status = sync.BeforeStep(); !status.ok()) return status;
  return sync.AfterStep();
}

std::string Replica::WrongNumbers() const {
  if (strategy_.error < 0) return "";
  const bool gradients = !ExchangesWeights();
  for (int p = 0; p < static_cast<int>(kCounts.size()); ++p) {
    const std::shared_ptr<void> view = synchronizer_->GradientView(p);
    const float* const numbers =
        gradients ? static_cast<const float*>(view.get()) : weights_[static_cast<std::size_t>(p)].data();
    for (std::int64_t i = 0; i < kCounts[static_cast<std::size_t>(p)]; ++i) {
      // All ranks begin with equal weights, whose average is these weights.
      const float expected = AverageGradient(p, i);
      if (std::abs(numbers[i] - expected) <= strategy_.error * kLargest) continue;
      return absl::StrCat(strategy_.name, " over ", communicator_.size(), " ranks: element ", i, " of ",
                          gradients ? "gradient " : "weights ", p, " is ", numbers[i], " and not ", expected,
                          " on rank ", communicator_.rank(), " after step ", synchronizer_->step());
    }
  }
  return "";
}

bool Replica::ExchangesWeights() const {
  return !absl::StartsWith(strategy_.name, "gradient") && !absl::StartsWith(strategy_.name, "bytegrad");
}

absl::Status Replica::CheckEqual() {
  std::vector<StateMemory> memory;
  std::vector<std::shared_ptr<void>> views;
  for (int p = 0; p < static_cast<int>(kCounts.size()); ++p) {
    const std::int64_t bytes = kCounts[static_cast<std::size_t>(p)] * std::int64_t{sizeof(float)};
    memory.push_back({weights_[static_cast<std::size_t>(p)].data(), bytes});
    if (ExchangesWeights()) continue;
    views.push_back(synchronizer_->GradientView(p));
    memory.push_back({views.back().get(), bytes});
  }
  return synchronizer_->CheckState(memory);
}

}  // namespace tutti::churn
