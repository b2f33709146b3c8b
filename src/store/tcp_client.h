// One attempt of ConnectTcpStore, for callers that look elsewhere when it fails.
#ifndef TUTTI_STORE_TCP_CLIENT_H_
#define TUTTI_STORE_TCP_CLIENT_H_

#include <cstdint>
#include <memory>

#include "tutti/store.h"

namespace tutti {

// Tries to connect to the server at `address`, until `end_ns` of MonotonicNanos. Unavailable and DeadlineExceeded mean
// that no server listens there, or that the server does not answer; another attempt may succeed.
absl::StatusOr<std::shared_ptr<Store>> TryTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                   std::int64_t end_ns);

}  // namespace tutti

#endif  // TUTTI_STORE_TCP_CLIENT_H_
