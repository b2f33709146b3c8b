// Trains a model of plain numbers, whose gradients are given, with the real synchronizer.
#ifndef TUTTI_TESTS_HARNESS_TRAINING_H_
#define TUTTI_TESTS_HARNESS_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tests/harness/world.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"

namespace tutti {

using Floats = std::vector<float>;
using Ranks = std::vector<Floats>;   // by rank: one number per element of the model
using History = std::vector<Ranks>;  // by step

struct Model {
  std::vector<std::int64_t> counts;  // elements of each parameter
  std::int64_t bucket_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  // The parameters of each bucket that the two limits above give, from the last parameter to the first.
  std::vector<std::vector<int>> buckets;

  std::int64_t count() const;
  // The number of elements in front of parameter `i`.
  std::int64_t first(int i) const;
};

// Seven parameters in four buckets: chunks with remainders, an empty parameter, and a bucket too small to be encoded.
Model SevenParameters();

// Reproducible numbers of several magnitudes.
Floats RandomNumbers(std::int64_t count, std::uint32_t seed);
// Random gradients, indexed [step][rank][element].
History RandomGradients(int steps, int ranks, std::int64_t count, std::uint32_t seed = 1);

// The model of one rank. The optimizer is x ← x - lr·g, or QAdam with the strategy qadam.
class Replica {
 public:
  // Makes a replica; collective.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(Communicator& world, const Model& model,
                                                         const std::string& strategy, const Floats& weights);
  // Like Create; a failure fails the test and returns null.
  static std::unique_ptr<Replica> Make(Communicator& world, const Model& model, const std::string& strategy,
                                       const Floats& weights);

  // Makes one training step, with every call of the synchronizer that belongs to a step.
  absl::Status Step(absl::Span<const float> gradient, float lr);

  Floats& weights() { return weights_; }
  Synchronizer& synchronizer() { return *synchronizer_; }
  QAdam* qadam() { return qadam_.get(); }  // null with other strategies
  // The gradient that the optimizer saw in the last step.
  const Floats& synchronized_gradient() const { return synchronized_; }

 private:
  Replica(const Model& model, const Floats& weights)
      : model_(model), weights_(weights), synchronized_(weights.size()) {}

  const Model model_;
  Floats weights_;
  Floats synchronized_;
  std::unique_ptr<Synchronizer> synchronizer_;
  std::unique_ptr<QAdam> qadam_;
};

// A training: model, strategy, initial weights and gradients.
struct Training {
  Model model = SevenParameters();
  std::string strategy;
  float lr = 0.05f;
  Floats initial;     // weights of all ranks
  History gradients;  // by step and rank, and so the number of steps and of ranks
  WorldOptions world;

  int size() const { return static_cast<int>(gradients[0].size()); }
};

// A training of `steps` steps with random gradients and weights.
Training RandomTraining(const std::string& strategy, int size, int steps);

// Runs the training and returns the weights of all ranks after every step.
History Train(const Training& training);

// Calls `body` on every rank of a new world with a new replica.
void RunReplicas(const Training& training, const std::function<void(Communicator&, Replica&)>& body);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_TRAINING_H_
