// TUTTI_INTERFACE: the store listens on an address, UCX on a device. Users name whichever they know.
#ifndef TUTTI_COMM_NETWORK_INTERFACE_H_
#define TUTTI_COMM_NETWORK_INTERFACE_H_

#include <string>

#include "absl/status/statusor.h"

namespace tutti {

struct NetworkInterface {
  std::string device;   // "eth0"
  std::string address;  // "10.0.0.3"; numeric
};

// The interface of this node that `text` means: a device (its first address, IPv4 before IPv6) or one of the numeric
// addresses of a device. InvalidArgument lists those that there are.
absl::StatusOr<NetworkInterface> FindNetworkInterface(const std::string& text);

}  // namespace tutti

#endif  // TUTTI_COMM_NETWORK_INTERFACE_H_
