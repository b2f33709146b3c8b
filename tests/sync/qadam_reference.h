// QAdam of all ranks in one loop, element by element, in f32. The library must equal this reference bit for bit, and
// shares only the codec's functions with it. Averages in the warm-up are exact (gradients are small integers).
#ifndef TESTS_SYNC_QADAM_REFERENCE_H_
#define TESTS_SYNC_QADAM_REFERENCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tutti/codec.h"

namespace tutti {

struct ReferenceElement {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  int parameter = 0;
};

// QAdam of one bucket.
class QAdamReference {
 public:
  // `steps_of_warmup`: w of docs/algorithms/qadam.md.
  QAdamReference(int ranks, int steps_of_warmup, bool error_feedback, std::vector<ReferenceElement> elements,
                 std::vector<float> weights)
      : n_(ranks),
        w_(steps_of_warmup),
        feedback_(error_feedback),
        elements_(std::move(elements)),
        x_(std::move(weights)),
        m_(x_.size()),
        v_(x_.size()),
        lost_by_rank_(ranks, std::vector<float>(x_.size())),
        lost_by_owner_(x_.size()) {}

  const std::vector<float>& weights() const { return x_; }

  // gradients[r] is rank r's.
  void Step(const std::vector<std::vector<float>>& gradients) {
    ++t_;
    if (t_ <= w_) {
      WarmUpStep(gradients);
      if (t_ == w_) Freeze();
      return;
    }
    std::vector<std::vector<float>> momentum(n_, std::vector<float>(x_.size()));
    for (int r = 0; r < n_; ++r) {
      for (std::size_t k = 0; k < x_.size(); ++k) momentum[r][k] = Momentum(k, Decayed(k, gradients[r][k]));
    }
    m_ = n_ == 1 ? momentum[0] : CompressedAverage(momentum);
    for (std::size_t k = 0; k < x_.size(); ++k) Move(k, std::sqrt(v_[k]));
  }

 private:
  float Decayed(std::size_t k, float g) const {
    if (elements_[k].weight_decay == 0) return g;
    const float decay = static_cast<float>(elements_[k].weight_decay) * x_[k];
    return g + decay;
  }

  float Momentum(std::size_t k, float g) const {
    const float kept = static_cast<float>(elements_[k].beta1) * m_[k];
    const float added = static_cast<float>(1 - elements_[k].beta1) * g;
    return kept + added;
  }

  void Move(std::size_t k, float deviation) {
    const auto size = static_cast<float>(elements_[k].lr / (1 - std::pow(elements_[k].beta1, double(t_))));
    const float numerator = size * m_[k];
    const float denominator = deviation + static_cast<float>(elements_[k].eps);
    x_[k] -= numerator / denominator;
  }

  void WarmUpStep(const std::vector<std::vector<float>>& gradients) {
    for (std::size_t k = 0; k < x_.size(); ++k) {
      float sum = 0;
      for (int r = 0; r < n_; ++r) sum += gradients[r][k];
      const float g = Decayed(k, sum / static_cast<float>(n_));
      m_[k] = Momentum(k, g);
      const float square = g * g;
      const float kept = static_cast<float>(elements_[k].beta2) * v_[k];
      const float added = static_cast<float>(1 - elements_[k].beta2) * square;
      v_[k] = kept + added;
      const auto correction = static_cast<float>(std::sqrt(1 - std::pow(elements_[k].beta2, double(t_))));
      Move(k, std::sqrt(v_[k]) / correction);
    }
  }

  void Freeze() {
    for (std::size_t k = 0; k < x_.size(); ++k) {
      v_[k] /= static_cast<float>(1 - std::pow(elements_[k].beta2, double(t_)));
    }
    std::map<int, std::pair<double, double>> sums;  // by parameter: the sum of v and the number of elements
    for (std::size_t k = 0; k < x_.size(); ++k) {
      sums[elements_[k].parameter].first += v_[k];
      sums[elements_[k].parameter].second += 1;
    }
    for (std::size_t k = 0; k < x_.size(); ++k) {
      const auto [sum, count] = sums[elements_[k].parameter];
      v_[k] = std::max(v_[k], static_cast<float>(1e-4 * (sum / count)));
    }
  }

  std::vector<std::uint8_t> Encode(const std::vector<float>& values) const {
    std::vector<std::uint8_t> message(
        codec_->encoded_bytes(static_cast<std::int64_t>(values.size()), codec_->defaults));
    codec_->encode(values, codec_->defaults, /*draw=*/0, absl::MakeSpan(message));
    return message;
  }

  // The decoded message of `values`; with feedback, of `values` and what the last message lost.
  std::vector<float> Pass(std::vector<float> values, float* lost) const {
    if (feedback_) {
      for (std::size_t k = 0; k < values.size(); ++k) values[k] += lost[k];
    }
    std::vector<float> seen(values.size());
    const absl::Status decoded = codec_->decode(Encode(values), codec_->defaults, false, absl::MakeSpan(seen));
    EXPECT_TRUE(decoded.ok()) << decoded;
    if (feedback_) {
      for (std::size_t k = 0; k < values.size(); ++k) lost[k] = values[k] - seen[k];
    }
    return seen;
  }

  std::vector<float> CompressedAverage(const std::vector<std::vector<float>>& momentum) {
    std::vector<float> average;
    std::size_t begin = 0;
    for (int owner = 0; owner < n_; ++owner) {
      const std::size_t count = x_.size() / n_ + (owner < static_cast<int>(x_.size() % n_) ? 1 : 0);
      std::vector<float> sum(count);
      for (int r = 0; r < n_; ++r) {
        const auto at = momentum[r].begin() + static_cast<std::ptrdiff_t>(begin);
        const std::vector<float> seen =
            Pass({at, at + static_cast<std::ptrdiff_t>(count)}, lost_by_rank_[r].data() + begin);
        for (std::size_t k = 0; k < count; ++k) sum[k] = r == 0 ? seen[k] : sum[k] + seen[k];
      }
      for (float& element : sum) element /= static_cast<float>(n_);
      for (float seen : Pass(sum, lost_by_owner_.data() + begin)) average.push_back(seen);
      begin += count;
    }
    return average;
  }

  const int n_;
  const int w_;
  const bool feedback_;
  const std::vector<ReferenceElement> elements_;
  const Codec* const codec_ = *FindCodec("uint8_block");
  int t_ = 0;

  std::vector<float> x_, m_, v_;
  std::vector<std::vector<float>> lost_by_rank_;
  std::vector<float> lost_by_owner_;
};

}  // namespace tutti

#endif  // TESTS_SYNC_QADAM_REFERENCE_H_
