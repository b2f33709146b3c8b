#ifndef TUTTI_COMM_TRANSPORT_CHOICE_H_
#define TUTTI_COMM_TRANSPORT_CHOICE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tutti/bootstrap.h"
#include "tutti/transport.h"

namespace tutti {

// The transport that TUTTI_TRANSPORT names; "auto": UCX, or in a world of one rank the in-process transport, which
// needs no network. Collective when `bootstrap` has a route (interface_choice.h); waits until `end_ns` of
// MonotonicNanos.
absl::StatusOr<std::unique_ptr<Transport>> ChooseTransport(const Bootstrap& bootstrap, std::int64_t end_ns);

}  // namespace tutti

#endif  // TUTTI_COMM_TRANSPORT_CHOICE_H_
