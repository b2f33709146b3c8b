// Waiting for all ranks of a job until `end_ns` of MonotonicNanos, and saying which ones are late.
#ifndef TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_
#define TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_

#include <cstdint>
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
LateRanksReport LateRanksOnStderr(std::string where, std::int64_t end_ns);

// Unavailable: `rank` has ended before the others were done with it (Store::OnGone).
absl::Status RankIsGone(Rank rank);

// Sets the value that `rank` has for GetFromAll, under the key `prefix` + rank.
absl::Status Contribute(Store& store, absl::string_view prefix, Rank rank, absl::string_view value,
                        std::int64_t end_ns);

// The values that all ranks have contributed under `prefix`, in order, as soon as each has. Unavailable names a rank
// that is gone (Store::Get) and has not. DeadlineExceeded lists the ranks that have not, "missing ranks: 1, 3", of a
// large world some of them; to name them takes up to 600 ms more. Ranks that wait for the same ones longer end with the
// same error at once.
absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, int size,
                                                    std::int64_t end_ns, const LateRanksReport& late);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_
