#include "tests/harness/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "tutti/algorithm.h"

namespace tutti {

std::int64_t Model::count() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }

std::int64_t Model::first(int i) const { return std::accumulate(counts.begin(), counts.begin() + i, std::int64_t{0}); }

Model SevenParameters() {
  return {.counts = {700, 3, 0, 1201, 64, 5, 2500},
          .bucket_bytes = 4096,
          .first_bucket_bytes = 1024,
          .buckets = {{6}, {5, 4}, {3}, {2, 1, 0}}};
}

Floats RandomNumbers(std::int64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Floats numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    // Numbers in [-1, 1), or a tenth or a thousandth of such numbers: blocks of a codec then hold several magnitudes,
    // as those of real layers do.
    const float unit = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
    const float scales[] = {1.0f, 0.1f, 0.001f};
    numbers[i] = unit * scales[(i / 37) % 3];
  }
  return numbers;
}

History RandomGradients(int steps, int ranks, std::int64_t count, std::uint32_t seed) {
  History gradients(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      gradients[step].push_back(RandomNumbers(count, seed * 1'000'003 + static_cast<std::uint32_t>(step * 64 + rank)));
    }
  }
  return gradients;
}

absl::StatusOr<std::unique_ptr<Replica>> Replica::Create(Communicator& world, const Model& model,
                                                         const std::string& strategy, const Floats& weights) {
  std::unique_ptr<Replica> replica(new Replica(model, weights));
  std::vector<Parameter> parameters;
  parameters.reserve(model.counts.size());
  for (int i = 0; i < static_cast<int>(model.counts.size()); ++i) {
    parameters.push_back({.name = absl::StrCat("p", i),
                          .count = model.counts[i],
                          .shape = absl::StrCat(model.counts[i]),
                          .weights = replica->weights_.data() + model.first(i)});
  }
  absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(
      world, parameters,
      {.strategy = strategy, .bucket_bytes = model.bucket_bytes, .first_bucket_bytes = model.first_bucket_bytes});
  if (!made.ok()) return made.status();
  replica->synchronizer_ = *std::move(made);
  if ((*ParseStrategy(strategy)).algorithm->exchanges == Exchanges::kMomentum) {
    std::vector<QAdam::Weights> tensors;
    tensors.reserve(parameters.size());
    for (const Parameter& parameter : parameters) tensors.push_back({.data = parameter.weights, .group = 0});
    absl::StatusOr<std::unique_ptr<QAdam>> qadam = QAdam::Create(*replica->synchronizer_, tensors, {{.lr = 0.01}});
    if (!qadam.ok()) return qadam.status();
    replica->qadam_ = *std::move(qadam);
  }
  return replica;
}

std::unique_ptr<Replica> Replica::Make(Communicator& world, const Model& model, const std::string& strategy,
                                       const Floats& weights) {
  absl::StatusOr<std::unique_ptr<Replica>> replica = Create(world, model, strategy, weights);
  EXPECT_TRUE(replica.ok()) << replica.status();
  if (!replica.ok()) return nullptr;
  EXPECT_EQ((*replica)->synchronizer().bucket_count(), static_cast<int>(model.buckets.size()));
  return *std::move(replica);
}

absl::Status Replica::Step(absl::Span<const float> gradient, float lr) {
  Synchronizer& sync = *synchronizer_;
  if (absl::Status status = sync.BeginForward(); !status.ok()) return status;
  if (absl::Status status = sync.BeginBackward(); !status.ok()) return status;
  std::copy(gradient.begin(), gradient.end(), synchronized_.begin());
  const int parameters = static_cast<int>(model_.counts.size());
  const auto copy = [&](int i, bool into_view) {
    const std::shared_ptr<void> view = sync.GradientView(i);
    if (view == nullptr || model_.counts[i] == 0) return;
    void* const mine = synchronized_.data() + model_.first(i);
    std::memcpy(into_view ? view.get() : mine, into_view ? mine : view.get(), model_.counts[i] * sizeof(float));
  };
  for (int i = parameters - 1; i >= 0; --i) {
    copy(i, /*into_view=*/true);
    sync.MarkReady(i);
  }
  if (absl::Status status = sync.FinishBackward(); !status.ok()) return status;
  for (int i = 0; i < parameters; ++i) copy(i, /*into_view=*/false);
  if (absl::Status status = sync.BeforeStep(); !status.ok()) return status;
  if (qadam_ != nullptr) {
    if (absl::Status status = qadam_->Step(); !status.ok()) return status;
  } else {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= lr * synchronized_[i];
  }
  return sync.AfterStep();
}

Training RandomTraining(const std::string& strategy, int size, int steps) {
  Training training;
  training.strategy = strategy;
  training.initial = RandomNumbers(training.model.count(), 99);
  training.gradients = RandomGradients(steps, size, training.model.count());
  return training;
}

void RunReplicas(const Training& training, const std::function<void(Communicator&, Replica&)>& body) {
  RunWorld(training.size(), training.world, [&](Communicator& world) {
    const std::unique_ptr<Replica> replica = Replica::Make(world, training.model, training.strategy, training.initial);
    ASSERT_NE(replica, nullptr);
    body(world, *replica);
  });
}

History Train(const Training& training) {
  History history(training.gradients.size(), Ranks(training.gradients[0].size()));
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (std::size_t step = 0; step < training.gradients.size(); ++step) {
      const absl::Status status = replica.Step(training.gradients[step][world.rank()], training.lr);
      ASSERT_TRUE(status.ok()) << status;
      history[step][world.rank()] = replica.weights();
    }
  });
  return history;
}

}  // namespace tutti
