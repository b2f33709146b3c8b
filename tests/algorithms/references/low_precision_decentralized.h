#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_LOW_PRECISION_DECENTRALIZED_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_LOW_PRECISION_DECENTRALIZED_H_

#include "tests/algorithms/references/codec_loss.h"
#include "tests/algorithms/references/reference.h"

namespace tutti {

// After the optimizer: d = x + L/3 + R/3 - 5W/3; Q(d) goes to both neighbours; x = W = W + D(Q(d)); and the decoded
// messages of the left and the right neighbour are added to L and R. One message holds the whole bucket.
class LowPrecisionDecentralizedReference : public Reference {
 public:
  LowPrecisionDecentralizedReference(int size, const Floats& initial, const CodecChoice& codec, int interval)
      : codec_(codec), interval_(interval), own_(size, initial), left_(own_), right_(own_) {}

  void WeightsAfterOptimizer(int step, Ranks& weights) override {
    const std::size_t size = weights.size();
    if (step % interval_ != 0 || size == 1) return;
    Ranks told(size);
    for (std::size_t r = 0; r < size; ++r) {
      Floats d(weights[r].size());
      for (std::size_t i = 0; i < d.size(); ++i) {
        d[i] = weights[r][i] + left_[r][i] / 3 + right_[r][i] / 3 - 5 * own_[r][i] / 3;
      }
      told[r] = ThroughCodec(codec_, d);
    }
    for (std::size_t r = 0; r < size; ++r) {
      for (std::size_t i = 0; i < told[r].size(); ++i) {
        own_[r][i] += told[r][i];
        left_[r][i] += told[(r + size - 1) % size][i];
        right_[r][i] += told[(r + 1) % size][i];
      }
      weights[r] = own_[r];
    }
  }

 private:
  const CodecChoice codec_;
  const int interval_;
  Ranks own_;
  Ranks left_;
  Ranks right_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_LOW_PRECISION_DECENTRALIZED_H_
