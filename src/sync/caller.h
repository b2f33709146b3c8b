// The identity that a synchronizer puts into each of its calls, so that it is noticed when calls of two synchronizers,
// two steps or two kinds meet.
#ifndef TUTTI_SYNC_CALLER_H_
#define TUTTI_SYNC_CALLER_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tutti/communicator.h"

namespace tutti {

// What a call is for: the last digit of CallOptions::owner. Users know these digits (docs/errors.md).
enum class Purpose : std::uint8_t {
  kStep = 0,       // the exchange of a step, or a round in the background
  kOverflow = 1,   // AgreeOnOverflow
  kLossScale = 2,  // SetLossScale
  kFlush = 3,      // Flush
  kState = 4,      // BroadcastState, CheckState, LoadState, Agree
  kUser = 5,       // a call that a user of the synchronizer makes with OwnCall
};

// The number of one caller. A value; const calls are thread-safe.
class Caller {
 public:
  // Gives the caller a number that is equal on all ranks of `communicator` and larger than that of every caller that
  // any of these ranks made before. Collective.
  static absl::StatusOr<Caller> Create(Communicator& communicator);

  // The number, from 1 on: the decimal digits of CallOptions::owner in front of the last one.
  std::uint32_t number() const { return number_; }
  // `options` with owner and round, and, except for kUser and kFlush, with the selector's choice of a schedule. `round`
  // is counted from 1 by all ranks alike; 0 where ranks may count differently.
  CallOptions Sign(Purpose purpose, std::uint64_t round, CallOptions options) const;

 private:
  explicit Caller(std::uint32_t number) : number_(number) {}

  std::uint32_t number_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_CALLER_H_
