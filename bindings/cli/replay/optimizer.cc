#include "bindings/cli/replay/optimizer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/qadam.h"

namespace tutti::cli {
namespace {

class Sgd : public ReplayOptimizer {
 public:
  Sgd(double lr, absl::Span<const float> gradient, absl::Span<float> weights)
      : lr_(static_cast<float>(lr)), gradient_(gradient), weights_(weights) {}

  absl::Status Step() override {
    for (std::size_t i = 0; i < weights_.size(); ++i) weights_[i] -= lr_ * gradient_[i];
    return absl::OkStatus();
  }

 private:
  const float lr_;
  const absl::Span<const float> gradient_;
  const absl::Span<float> weights_;
};

class Adam : public ReplayOptimizer {
 public:
  Adam(double lr, absl::Span<const float> gradient, absl::Span<float> weights)
      : lr_(lr), gradient_(gradient), weights_(weights), m_(weights.size()), v_(weights.size()) {}

  absl::Status Step() override {
    ++step_;
    const auto step_size = static_cast<float>(lr_ / (1 - std::pow(kBeta1, step_)));
    const auto root_correction = static_cast<float>(std::sqrt(1 - std::pow(kBeta2, step_)));
    constexpr auto kBeta1F = static_cast<float>(kBeta1);
    constexpr auto kBeta2F = static_cast<float>(kBeta2);
    constexpr auto kRest1 = static_cast<float>(1 - kBeta1);
    constexpr auto kRest2 = static_cast<float>(1 - kBeta2);
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const float g = gradient_[i];
      m_[i] = kBeta1F * m_[i] + kRest1 * g;
      v_[i] = kBeta2F * v_[i] + kRest2 * (g * g);
      weights_[i] -= step_size * m_[i] / (std::sqrt(v_[i]) / root_correction + kEpsilon);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr float kEpsilon = 1e-8f;

  const double lr_;
  const absl::Span<const float> gradient_;
  const absl::Span<float> weights_;
  std::vector<float> m_;
  std::vector<float> v_;
  int step_ = 0;
};

class QAdamOptimizer : public ReplayOptimizer {
 public:
  explicit QAdamOptimizer(std::unique_ptr<QAdam> qadam) : qadam_(std::move(qadam)) {}
  absl::Status Step() override { return qadam_->Step(); }

 private:
  const std::unique_ptr<QAdam> qadam_;
};

}  // namespace

std::vector<std::string> ReplayOptimizerNames() { return {"sgd", "adam", "qadam"}; }

absl::StatusOr<std::string> ChooseReplayOptimizer(const Strategy& strategy, const std::string& asked) {
  const bool exchanges_momentum = strategy.algorithm->exchanges == Exchanges::kMomentum;
  if (asked.empty()) return std::string(exchanges_momentum ? "qadam" : "sgd");
  if (exchanges_momentum == (asked == "qadam")) return asked;
  return absl::InvalidArgumentError(
      absl::StrCat("--optimizer ", asked, " does not go with the strategy ", strategy.algorithm->name, ", which ",
                   exchanges_momentum ? "exchanges the momentum of an optimizer of its own; needed is qadam"
                                      : "exchanges no momentum; needed is sgd or adam"));
}

absl::StatusOr<std::unique_ptr<ReplayOptimizer>> MakeReplayOptimizer(const std::string& name, double lr,
                                                                     Synchronizer& synchronizer,
                                                                     absl::Span<const float> gradient,
                                                                     absl::Span<float> weights) {
  if (name == "qadam") {
    absl::StatusOr<std::unique_ptr<QAdam>> qadam =
        QAdam::Create(synchronizer, {{.data = weights.data(), .group = 0}}, {{.lr = lr}});
    if (!qadam.ok()) return qadam.status();
    return std::make_unique<QAdamOptimizer>(*std::move(qadam));
  }
  if (name == "adam") return std::make_unique<Adam>(lr, gradient, weights);
  return std::make_unique<Sgd>(lr, gradient, weights);
}

}  // namespace tutti::cli
