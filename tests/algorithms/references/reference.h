// References: what an algorithm does, written down as one loop over all ranks on plain vectors. References share
// nothing with the library but the codecs' encode and decode.
#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_REFERENCE_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_REFERENCE_H_

#include <functional>
#include <memory>
#include <vector>

#include "tests/harness/training.h"

namespace tutti {

// One bucket on all ranks: values[rank][element]. Steps count from 0.
class Reference {
 public:
  virtual ~Reference() = default;
  virtual void Gradients(int /*step*/, Ranks& /*gradients*/) {}
  virtual void WeightsBeforeOptimizer(int /*step*/, Ranks& /*weights*/) {}
  virtual void WeightsAfterOptimizer(int /*step*/, Ranks& /*weights*/) {}
};

// Makes a new reference for a bucket, given the weights in the bucket that all ranks start with.
using MakeReference = std::function<std::unique_ptr<Reference>(const Floats& initial)>;

// The values that a bucket holds, parameter by parameter.
inline Floats InBucket(const Model& model, const std::vector<int>& bucket, const Floats& all) {
  Floats values;
  for (const int i : bucket) {
    values.insert(values.end(), all.begin() + model.first(i), all.begin() + model.first(i) + model.counts[i]);
  }
  return values;
}

inline void FromBucket(const Model& model, const std::vector<int>& bucket, const Floats& values, Floats& all) {
  auto next = values.begin();
  for (const int i : bucket) {
    std::copy(next, next + model.counts[i], all.begin() + model.first(i));
    next += model.counts[i];
  }
}

// The weights of all ranks after every step of plain gradient descent.
inline History TrainByReference(const Training& training, const MakeReference& make) {
  const Model& model = training.model;
  History history(training.gradients.size(), Ranks(training.size(), training.initial));
  for (const std::vector<int>& bucket : model.buckets) {
    const Floats initial = InBucket(model, bucket, training.initial);
    const std::unique_ptr<Reference> reference = make(initial);
    Ranks weights(training.size(), initial);
    for (int step = 0; step < static_cast<int>(training.gradients.size()); ++step) {
      Ranks gradients;
      for (const Floats& gradient : training.gradients[step]) gradients.push_back(InBucket(model, bucket, gradient));
      reference->Gradients(step, gradients);
      reference->WeightsBeforeOptimizer(step, weights);
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        for (std::size_t i = 0; i < initial.size(); ++i) weights[rank][i] -= training.lr * gradients[rank][i];
      }
      reference->WeightsAfterOptimizer(step, weights);
      for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        FromBucket(model, bucket, weights[rank], history[step][rank]);
      }
    }
  }
  return history;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_REFERENCE_H_
