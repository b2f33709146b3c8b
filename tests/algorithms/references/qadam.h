#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_QADAM_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_QADAM_H_

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "tests/algorithms/references/reference.h"

namespace tutti {

// QAdam for a bucket of one parameter. In the warm-up `exact` averages gradients, for a step of Adam; later every rank
// puts its gradient into the momentum, `compressed` averages the momentum, and the variance is frozen. QAdamReference
// changes the weights itself and hands gradients of zero to the optimizer of the loop.
class QAdamReference : public Reference {
 public:
  QAdamReference(int warmup_steps, double lr, std::unique_ptr<Reference> exact, std::unique_ptr<Reference> compressed,
                 std::size_t count)
      : warmup_steps_(warmup_steps),
        lr_(lr),
        exact_(std::move(exact)),
        compressed_(std::move(compressed)),
        momentum_(count),
        variance_(count) {}

  void Gradients(int step, Ranks& gradients) override {
    if (step < warmup_steps_) {
      exact_->Gradients(step, gradients);
      Average(momentum_, kBeta1, gradients[0]);
      Floats squares = gradients[0];
      for (float& square : squares) square *= square;
      Average(variance_, kBeta2, squares);
    } else {
      for (Floats& values : gradients) {
        Floats momentum = momentum_;
        Average(momentum, kBeta1, values);
        values = momentum;
      }
      compressed_->Gradients(step, gradients);
      momentum_ = gradients[0];
    }
    gradients.assign(gradients.size(), Floats(momentum_.size()));
  }

  void WeightsAfterOptimizer(int step, Ranks& weights) override {
    const double bias1 = 1 - std::pow(kBeta1, step + 1);
    const double bias2 = 1 - std::pow(kBeta2, step + 1);
    const auto correction = static_cast<float>(step < warmup_steps_ ? std::sqrt(bias2) : 1);
    for (Floats& x : weights) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float moved = static_cast<float>(lr_ / bias1) * momentum_[i];
        x[i] -= moved / (std::sqrt(variance_[i]) / correction + 1e-8f);
      }
    }
    if (step + 1 == warmup_steps_) Freeze(static_cast<float>(bias2));
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;

  // average ← beta · average + (1 - beta) · values
  static void Average(Floats& average, double beta, const Floats& values) {
    for (std::size_t i = 0; i < average.size(); ++i) {
      const float kept = static_cast<float>(beta) * average[i];
      const float added = static_cast<float>(1 - beta) * values[i];
      average[i] = kept + added;
    }
  }

  void Freeze(float bias) {
    for (float& v : variance_) v /= bias;
    const double mean =
        std::accumulate(variance_.begin(), variance_.end(), 0.0) / static_cast<double>(variance_.size());
    for (float& v : variance_) v = std::max(v, static_cast<float>(1e-4 * mean));
  }

  const int warmup_steps_;
  const double lr_;
  const std::unique_ptr<Reference> exact_;
  const std::unique_ptr<Reference> compressed_;
  Floats momentum_;
  Floats variance_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_QADAM_H_
