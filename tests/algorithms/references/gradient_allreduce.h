#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_GRADIENT_ALLREDUCE_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_GRADIENT_ALLREDUCE_H_

#include "tests/algorithms/references/reference.h"

namespace tutti {

// (v_0 + v_1 + …) / divisor, from left to right.
inline Floats SumInOrder(const Ranks& values, int divisor) {
  Floats sum = values[0];
  for (std::size_t rank = 1; rank < values.size(); ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[rank][i];
  }
  for (float& element : sum) element /= static_cast<float>(divisor);
  return sum;
}

// ḡ = (Σ g_r) / divisor
class GradientAllReduceReference : public Reference {
 public:
  explicit GradientAllReduceReference(int divisor) : divisor_(divisor) {}
  void Gradients(int /*step*/, Ranks& gradients) override {
    gradients.assign(gradients.size(), SumInOrder(gradients, divisor_));
  }

 private:
  const int divisor_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_GRADIENT_ALLREDUCE_H_
