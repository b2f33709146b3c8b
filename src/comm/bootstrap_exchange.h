// Waiting for all ranks of a job, and saying which ones are late.
#ifndef TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_
#define TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/store.h"

namespace tutti {

// Hears once, after `patience`, which ranks are late: "1, 3".
struct LateRanksReport {
  absl::Duration patience = absl::Seconds(5);
  std::function<void(absl::string_view ranks)> report;  // null: nobody wants to know
};

// For the rank that speaks for the job while all of them meet at `where`, "exchange 'address'": a line on stderr.
LateRanksReport LateRanksOnStderr(std::string where, absl::Time deadline);

// The values of `prefix` + rank of all ranks, in order, as soon as each has set its own. DeadlineExceeded lists those
// that have not: "missing ranks: 1, 3".
absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, int size,
                                                    absl::Time deadline, const LateRanksReport& late);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_
