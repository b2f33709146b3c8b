// Waiting for all ranks of a job until `end_ns` of MonotonicNanos, and reports of the ranks that are late.
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

// The function that is told, once and after `patience`, which ranks are late.
struct LateRanksReport {
  absl::Duration patience = absl::Seconds(5);
  std::function<void(absl::string_view ranks)> report;  // gets the late ranks, "1, 3"; null: no report is wanted
};

// A report that prints one line on stderr; only one rank of a job needs it. `where` says what the ranks meet for, such
// as "exchange 'address'".
LateRanksReport LateRanksOnStderr(std::string where, std::int64_t end_ns);

// Members of a group that meet, in the group's order.
struct MeetingMembers {
  std::vector<Rank> ranks;  // numbered as in the parent communicator; errors use these numbers
  absl::Duration limit;     // how long the members wait for each other
};

// Unavailable: `rank` has ended before the other ranks were done with `rank` (Store::OnGone).
absl::Status RankIsGone(Rank rank);

// Sets the value that GetFromAll returns for `rank`, under the key `prefix` + rank.
absl::Status Contribute(Store& store, absl::string_view prefix, Rank rank, absl::string_view value,
                        std::int64_t end_ns);

// The values that all ranks have contributed under `prefix`, in rank order, once every rank has contributed.
// Unavailable names a rank that is gone (Store::Get) without a contribution. DeadlineExceeded lists the missing ranks,
// "missing ranks: 1, 3" (in a large world some of them); naming takes up to 600 ms beyond `end_ns`. Ranks with a later
// deadline, and those that come later, then end with that error at once, because the contribution of this rank, `own`,
// is taken back; a rank that was missing itself is told so. With `members`, one for each rank of `store`, errors use
// the rank numbers of `members`, and DeadlineExceeded says "rank 1 has not come within 14s".
absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, Rank own, int size,
                                                    std::int64_t end_ns, const LateRanksReport& late,
                                                    const MeetingMembers* members = nullptr);

// ExchangeBlobs until `end_ns`. Errors and the line on stderr begin with `what`.
absl::StatusOr<std::vector<std::string>> ExchangeUntil(Store& store, absl::string_view name, absl::string_view what,
                                                       Rank rank, int size, absl::string_view blob,
                                                       std::int64_t end_ns);

// Ends the exchange `name` on all ranks of `store`, also on those that come to it later: `rank`, which has met `cause`
// before, will not come. The others end with Unavailable, "rank 2 has given up: …" and the text of `cause`, which is
// returned here. Takes up to 300 ms, and no error: where the store does not answer, the others wait until their
// deadline. For an exchange of an attempt that nobody repeats with this store, because the notes stay there.
absl::Status StayAway(Store& store, absl::string_view name, Rank rank, int size, absl::Status cause);

// ExchangeBlobs between the members of a group. `place` is the caller's position among the members and its rank in
// `store`. Errors and the line on stderr begin with `what`: "Group 'pair' of ranks 2, 0".
absl::StatusOr<std::vector<std::string>> ExchangeInGroup(Store& store, absl::string_view what, Rank place,
                                                         const MeetingMembers& members, absl::string_view blob);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_EXCHANGE_H_
