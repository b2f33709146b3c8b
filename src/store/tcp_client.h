// One attempt at what ConnectTcpStore does, for callers that look elsewhere when it fails.
#ifndef TUTTI_STORE_TCP_CLIENT_H_
#define TUTTI_STORE_TCP_CLIENT_H_

#include <memory>

#include "tutti/store.h"

namespace tutti {

// Unavailable and DeadlineExceeded: nobody is there, or does not answer; another attempt may succeed.
absl::StatusOr<std::shared_ptr<Store>> TryTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                   absl::Time deadline);

}  // namespace tutti

#endif  // TUTTI_STORE_TCP_CLIENT_H_
