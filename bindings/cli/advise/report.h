// The comparison of strategies for a training, and how `tutti advise` shows it.
#ifndef TUTTI_BINDINGS_CLI_ADVISE_REPORT_H_
#define TUTTI_BINDINGS_CLI_ADVISE_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bindings/cli/advise/prediction.h"
#include "bindings/cli/advise/strategies.h"
#include "bindings/cli/advise/training.h"

namespace tutti::cli {

struct AdvisedRow {
  const AdvisedStrategy* strategy = nullptr;
  bool competes = false;  // no flag is missing that the strategy needs to be the advice
  absl::StatusOr<StepPrediction> prediction;
};

struct Advice {
  AdvisedTraining training;
  StepPrediction exact;  // of fp32 gradient_allreduce, to which the others are compared
  // The advice first; then the strategies that compete, the fastest first; those that do not; those that cannot serve.
  std::vector<AdvisedRow> rows;

  double SpeedOf(const StepPrediction& prediction) const { return exact.step_s / prediction.step_s; }
};

// The error is that of fp32 gradient_allreduce.
absl::StatusOr<Advice> Advise(const AdvisedTraining& training);

// The advice and its reason, in two sentences or so.
std::string InWords(const Advice& advice);
// A text for people, and a document for programs, which says all that the table says.
std::string ToTable(const Advice& advice);
std::string ToJson(const Advice& advice);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_ADVISE_REPORT_H_
