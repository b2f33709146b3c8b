// The identity that a synchronizer puts into each of its calls, so that it is noticed when calls of two synchronizers,
// two steps or two kinds meet.
#ifndef TUTTI_SYNC_CALLER_H_
#define TUTTI_SYNC_CALLER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/call_owner.h"
#include "tutti/communicator.h"

namespace tutti {

// A synchronizer, a BucketExchange or one bucket of the latter, as the maker of calls. A value; const calls are
// thread-safe.
class Caller {
 public:
  // Gives the caller a number that is equal on all ranks of `communicator` and larger than that of every caller that
  // any of these ranks made before. Collective. ResourceExhausted where there are no more numbers.
  static absl::StatusOr<Caller> Create(Communicator& communicator, CallOwner::Kind kind);

  // From 1 on.
  std::uint32_t number() const { return number_; }
  // `options` with owner and round, and, except for kUser and kFlush, with the selector's choice of a schedule. `round`
  // is counted from 1 by all ranks alike; 0 where ranks may count differently.
  CallOptions Sign(Purpose purpose, std::uint64_t round, CallOptions options) const;

 private:
  Caller(CallOwner::Kind kind, std::uint32_t number) : kind_(kind), number_(number) {}

  CallOwner::Kind kind_;
  std::uint32_t number_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_CALLER_H_
