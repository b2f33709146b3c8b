#ifndef TUTTI_COMM_TRANSPORT_CHOICE_H_
#define TUTTI_COMM_TRANSPORT_CHOICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "tutti/transport.h"

namespace tutti {

// The transport that TUTTI_TRANSPORT names; "auto": UCX, or in a world of one rank the one that needs no network.
absl::StatusOr<std::unique_ptr<Transport>> ChooseTransport(int size);

}  // namespace tutti

#endif  // TUTTI_COMM_TRANSPORT_CHOICE_H_
