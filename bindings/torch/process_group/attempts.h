// Attempts at making a group whose members meet through torch's store.
#ifndef TUTTI_TORCH_PROCESS_GROUP_ATTEMPTS_H_
#define TUTTI_TORCH_PROCESS_GROUP_ATTEMPTS_H_

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/torch/process_group/interrupt.h"
#include "tutti/dtype.h"
#include "tutti/store.h"

namespace tutti::dist {

// Rank 0 of the group begins each attempt, under a name that was never used before, and tells the others the name of
// the newest one. What an attempt has left in the store thus ends no later one, in this process or in the next life of
// the job: torchrun restarts workers with the same store, which some of them may have used in their last life, and
// others not. See docs/decisions/0040.
class Attempts {
 public:
  // Attempts at making a group of `size` members, of which this process is `rank`. Groups of other names or members
  // have other stores.
  Attempts(const c10::intrusive_ptr<::c10d::Store>& store, Rank rank, int size);

  // The name of the attempt in which this rank is to take part next: on rank 0 a new one, on others the newest one that
  // rank 0 has begun. If they have taken part in that one already, in this life or in an earlier one, or a rank has
  // given it up, they wait for another one; after five seconds a line on stderr says why it was given up.
  // DeadlineExceeded when there is none until `end`, Cancelled when a handler of Python's signals raises.
  absl::StatusOr<std::string> Next(WaitClock::time_point end);

  // Tells the ranks that have not taken part in `attempt` yet to wait for the next one: this rank has failed in it,
  // with the error `why`.
  void GiveUp(const std::string& attempt, const absl::Status& why);

  // Aborted when rank 0 has begun another attempt since `attempt`, for which nobody waits then.
  absl::Status CheckIsNewest(const std::string& attempt) const;

 private:
  const std::shared_ptr<Store> store_;
  const Rank rank_;
  const std::string key_;  // of the newest attempt's name
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_ATTEMPTS_H_
