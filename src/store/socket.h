// Blocking use of one TCP connection, with deadlines.
#ifndef TUTTI_STORE_SOCKET_H_
#define TUTTI_STORE_SOCKET_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace tutti {

// "host:port" or "[v6]:port" in parts; InvalidArgument repeats the text.
absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(absl::string_view address);

// A connected, non-blocking socket. Unavailable: nobody listens there (yet); InvalidArgument: no address.
absl::StatusOr<UniqueFd> ConnectTcp(absl::string_view address, absl::Time deadline);

// All of `bytes`; Unavailable when the peer is gone, DeadlineExceeded when it does not read.
absl::Status SendAll(int fd, absl::string_view bytes, absl::Time deadline);
// At least one and at most `most` bytes; Unavailable when the peer has closed.
absl::StatusOr<std::string> ReceiveSome(int fd, std::size_t most, absl::Time deadline);
absl::StatusOr<std::string> ReceiveExactly(int fd, std::size_t bytes, absl::Time deadline);

}  // namespace tutti

#endif  // TUTTI_STORE_SOCKET_H_
