// What the ranks of a check report, as one status.
#ifndef TESTS_GPU_RANK_REPORT_H_
#define TESTS_GPU_RANK_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti::gpu {

// OK when all ranks are. Otherwise the errors of all ranks; the code is that of the first one that is no mere
// consequence of another rank's end.
inline absl::Status Joined(const std::vector<absl::Status>& of_ranks) {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string text;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const absl::Status& status = of_ranks[rank];
    if (status.ok()) continue;
    if (code == absl::StatusCode::kOk || code == absl::StatusCode::kUnavailable) code = status.code();
    absl::StrAppend(&text, text.empty() ? "" : "\n    ", "rank ", rank, ": ", status.ToString());
  }
  return absl::Status(code, text);
}

}  // namespace tutti::gpu

#endif  // TESTS_GPU_RANK_REPORT_H_
