// Blocking use of one TCP connection. Every wait ends at `end_ns` of MonotonicNanos, but for the look-up of a host's
// name in ConnectTcp, whose bound is the system's: resolv.conf's timeout and attempts.
#ifndef TUTTI_STORE_SOCKET_H_
#define TUTTI_STORE_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fork.h"

namespace tutti {

// Splits "host:port" or "[v6]:port"; InvalidArgument repeats the text.
absl::StatusOr<std::pair<std::string, std::string>> SplitAddress(absl::string_view address);

// The reverse: "host:port", or "[v6]:port" where the host is an IPv6 address.
std::string JoinAddress(absl::string_view host, absl::string_view port);

// Connects a non-blocking socket, which no child keeps that is forked meanwhile: the server would take this process for
// alive after its end. Unavailable: nobody listens there (yet); InvalidArgument: `address` is no address.
absl::StatusOr<UnsharedFd> ConnectTcp(absl::string_view address, std::int64_t end_ns);

// Waits until the connection takes bytes: then the next SendAll sends at least one. DeadlineExceeded when the peer does
// not read; errors of the connection are left to SendAll.
absl::Status WaitToSend(int fd, std::int64_t end_ns);
// Sends all of `bytes`; Unavailable when the peer is gone, DeadlineExceeded when the peer does not read.
absl::Status SendAll(int fd, absl::string_view bytes, std::int64_t end_ns);
// Receives at least one byte and at most `most`; Unavailable when the peer has closed.
absl::StatusOr<std::string> ReceiveSome(int fd, std::size_t most, std::int64_t end_ns);
absl::StatusOr<std::string> ReceiveExactly(int fd, std::size_t bytes, std::int64_t end_ns);

}  // namespace tutti

#endif  // TUTTI_STORE_SOCKET_H_
