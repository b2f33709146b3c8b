// A model of one rank for a few steps. Gradients are small integers, and only the strategy changes the weights, so that
// the right gradients and weights are known.
#ifndef TUTTI_TESTS_CHURN_REPLICA_H_
#define TUTTI_TESTS_CHURN_REPLICA_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/synchronizer.h"

namespace tutti::churn {

// A strategy name, and how far its averages may be from the exact ones.
struct TriedStrategy {
  absl::string_view name;
  // The largest error, as a part of the largest gradient; 0: exact, negative: not known.
  double error;
};
absl::Span<const TriedStrategy> TriedStrategies();

class Replica {
 public:
  // Makes a replica; collective.
  static absl::StatusOr<std::unique_ptr<Replica>> Make(Communicator& communicator, const TriedStrategy& strategy,
                                                       int salt);

  // Makes one training step; collective, except with `async`, whose ranks step at their own pace.
  absl::Status Step();
  // What is wrong with the gradients or weights after the last step; empty when nothing is.
  std::string WrongNumbers() const;
  // Collective: whether replicas hold equal bits where they must. DataLoss when not.
  absl::Status CheckEqual();

  Synchronizer& synchronizer() { return *synchronizer_; }

 private:
  Replica(Communicator& communicator, const TriedStrategy& strategy, int salt)
      : communicator_(communicator), strategy_(strategy), salt_(salt) {}

  bool ExchangesWeights() const;
  float Gradient(Rank rank, int parameter, std::int64_t i) const;
  float AverageGradient(int parameter, std::int64_t i) const;

  Communicator& communicator_;
  const TriedStrategy strategy_;
  const int salt_;
  std::vector<std::vector<float>> weights_;
  std::unique_ptr<Synchronizer> synchronizer_;
};

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_REPLICA_H_
