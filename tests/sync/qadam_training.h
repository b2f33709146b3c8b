// A small model that is trained with QAdam, and its gradients.
#ifndef TUTTI_TESTS_SYNC_QADAM_TRAINING_H_
#define TUTTI_TESTS_SYNC_QADAM_TRAINING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tutti/communicator.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"

namespace tutti {

using Tensors = std::vector<std::vector<float>>;  // one per parameter
// The gradient of a rank, step (from 1), parameter and element: a quarter of a small integer, so that sums are exact.
using Gradients = std::function<float(Rank, int, int, std::int64_t)>;

inline constexpr int kWarmUp = 20;

// Two buckets, large enough to shrink in any world: {c, b} and {a}.
inline const std::vector<Parameter>& QAdamModel() {
  static const std::vector<Parameter> model = {
      {"a", DType::kF32, 700, "700"}, {"b", DType::kF32, 500, "500"}, {"c", DType::kF32, 300, "300"}};
  return model;
}
inline constexpr int kGroupOf[] = {0, 1, 0};

inline std::vector<QAdam::Group> TwoGroups() {
  return {{.lr = 0.01, .weight_decay = 0.1}, {.lr = 0.02, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6}};
}

inline SynchronizerOptions QAdamOptions(absl::string_view more = "", bool allow_unused = false) {
  return {.strategy = absl::StrCat("qadam:warmup_steps=", kWarmUp, more),
          .bucket_bytes = 4000,
          .first_bucket_bytes = 3200,
          .allow_unused = allow_unused};
}

inline Tensors InitialWeights() {
  Tensors weights;
  for (const Parameter& parameter : QAdamModel()) {
    std::vector<float>& tensor = weights.emplace_back();
    for (std::int64_t k = 0; k < parameter.count; ++k) tensor.push_back(0.1f * static_cast<float>((k * 7) % 11 - 5));
  }
  return weights;
}

inline float SomeGradient(Rank rank, int step, int parameter, std::int64_t k) {
  auto hash = static_cast<std::uint32_t>(((step * 3 + parameter) * 1009 + k) * 8 + rank) * 2654435761u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  return 0.25f * (static_cast<float>((hash >> 16) % 17) - 8.0f);
}

// One rank with its model, whose parameters `trained`, ascending, are not frozen; `prefix` is before all names.
class QAdamTrainer {
 public:
  QAdamTrainer(Communicator& world, const SynchronizerOptions& options, std::vector<QAdam::Group> groups = TwoGroups(),
               Tensors initial = InitialWeights(), std::vector<int> trained = {0, 1, 2}, absl::string_view prefix = "")
      : weights(std::move(initial)), rank_(world.rank()), trained_(std::move(trained)) {
    std::vector<Parameter> parameters;
    std::vector<QAdam::Weights> places;
    for (const int i : trained_) {
      parameters.push_back(QAdamModel()[i]);
      parameters.back().name = absl::StrCat(prefix, QAdamModel()[i].name);
      places.push_back({weights[i].data(), kGroupOf[i]});
    }
    absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(world, parameters, options);
    EXPECT_TRUE(made.ok()) << made.status();
    synchronizer = *std::move(made);
    absl::StatusOr<std::unique_ptr<QAdam>> optimizer = QAdam::Create(*synchronizer, places, std::move(groups));
    EXPECT_TRUE(optimizer.ok()) << optimizer.status();
    qadam = *std::move(optimizer);
  }

  // `used`: the first so many of the trained parameters get a gradient.
  absl::Status Backward(int step, const Gradients& gradient, int used = 3) {
    if (absl::Status begun = synchronizer->BeginBackward(); !begun.ok()) return begun;
    for (int place = std::min(used, static_cast<int>(trained_.size())) - 1; place >= 0; --place) {
      const int i = trained_[place];
      auto* const view = static_cast<float*>(synchronizer->GradientView(place).get());
      for (std::int64_t k = 0; k < QAdamModel()[i].count; ++k) view[k] += gradient(rank_, step, i, k);
      synchronizer->MarkReady(place);
    }
    return synchronizer->FinishBackward();
  }

  absl::Status Step(int step, const Gradients& gradient, int used = 3) {
    if (absl::Status done = Backward(step, gradient, used); !done.ok()) return done;
    const absl::Status stepped = qadam->Step();
    synchronizer->ZeroGradients();
    return stepped;
  }

  Tensors weights;
  std::unique_ptr<Synchronizer> synchronizer;
  std::unique_ptr<QAdam> qadam;

 private:
  const Rank rank_;
  const std::vector<int> trained_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_SYNC_QADAM_TRAINING_H_
