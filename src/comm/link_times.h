// How long messages take on a link, found in few of them.
#ifndef TUTTI_COMM_LINK_TIMES_H_
#define TUTTI_COMM_LINK_TIMES_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace tutti {

// The most bytes that TimeLink exchanges at once.
constexpr std::int64_t kMaxExchanged = 4 << 20;

struct LinkNanos {
  std::int64_t trip = 0;      // a few bytes there and back
  std::int64_t exchange = 0;  // `bytes` in both directions at once, beyond a trip
  std::int64_t bytes = 0;
  // A few bytes to and from all other ranks, `messages` of them, at once, while all ranks do so, and for how long of
  // that time a rank stood in line for a processor; `peers` of the other ranks are on other nodes than rank 0.
  std::int64_t crowd = 0;
  std::int64_t in_line = 0;
  int messages = 0;
  int peers = 0;  // 0: not measured
};

// `exchange(bytes)` tells the peer `bytes`, lets both send so many bytes at once, and returns the nanoseconds until
// this rank has the peer's; without bytes, the peer answers by a few bytes. The bytes are doubled until they take 5 ms,
// or are kMaxExchanged. Errors are those of `exchange`.
absl::StatusOr<LinkNanos> TimeLink(absl::FunctionRef<absl::StatusOr<std::int64_t>(std::int64_t bytes)> exchange);

}  // namespace tutti

#endif  // TUTTI_COMM_LINK_TIMES_H_
