// The cases of a benchmark whose flags name several collectives, types, operators, codecs or schedules.
#ifndef TUTTI_BINDINGS_CLI_BENCH_SWEEP_H_
#define TUTTI_BINDINGS_CLI_BENCH_SWEEP_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bindings/cli/bench/options.h"
#include "tutti/dtype.h"

namespace tutti::cli {

// What flags name. Each combination is a case.
struct BenchSweep {
  std::vector<std::string> collectives;
  std::vector<DType> dtypes = {DType::kF32};
  std::vector<ReduceOp> ops = {ReduceOp::kSum};
  std::vector<std::string> codecs = {"none"};  // with their options; "none": values travel as they are
  std::vector<std::string> schedules = {""};   // "": the one that is chosen; "all": each one that serves
};

// Values of flags: "all", or names with commas between them. InvalidArgument names the one that there is not.
absl::StatusOr<std::vector<std::string>> ParseCollectives(absl::string_view text);
absl::StatusOr<std::vector<DType>> ParseDTypes(absl::string_view text);
absl::StatusOr<std::vector<ReduceOp>> ParseReduceOps(absl::string_view text);
// The schedules of a collective are known only with the collective.
absl::StatusOr<std::vector<std::string>> ParseScheduleNames(absl::string_view text);

// What `codecs` stand for, where "all" is "none" and every codec.
std::vector<std::string> CodecsNamed(const std::vector<std::string>& codecs);

struct BenchCases {
  std::vector<BenchOptions> cases;
  std::vector<std::string> left_out;  // why combinations are no cases
};

// The combinations that `ranks` ranks can measure, in the order collectives, types, operators, codecs, schedules; what
// the sweep does not name is as in `options`. An error when there is none, or when a schedule is unknown.
absl::StatusOr<BenchCases> CasesOf(const BenchSweep& sweep, const BenchOptions& options, int ranks);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_SWEEP_H_
