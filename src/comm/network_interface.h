// The network interface that TUTTI_INTERFACE names, by device, by address or by subnet, whichever the user knows: the
// store listens on an address, UCX on a device.
#ifndef TUTTI_COMM_NETWORK_INTERFACE_H_
#define TUTTI_COMM_NETWORK_INTERFACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

struct NetworkInterface {
  std::string device;   // "eth0"
  std::string address;  // "10.0.0.3"; numeric
};

// The interface of this node that `text` means: a device (its first address, IPv4 before IPv6), one of the numeric
// addresses of a device, or a subnet that has an address of one device (10.0.0.0/24, fd00::/64), which serves nodes
// whose devices have different names. InvalidArgument lists the interfaces that there are, and says where `text` was
// set; so does InvalidArgument of a subnet that has addresses of several devices.
absl::StatusOr<NetworkInterface> FindNetworkInterface(const std::string& text,
                                                      absl::string_view setting = "TUTTI_INTERFACE");

// The interface from which this node would send to `host`, a name or an address; loopback when `host` is this node's
// name for itself. Nothing is sent but what it takes to look the name up. NotFound, Unavailable: the name means nothing
// here, or no route leads there.
absl::StatusOr<NetworkInterface> InterfaceTowards(const std::string& host);

// The addresses of this node's interfaces that `host`, a name or an address, means here, IPv4 before IPv6 and otherwise
// in the order of the look-up, without those of loopback. Empty when `host` means only other addresses, or nothing.
std::vector<NetworkInterface> OwnAddresses(const std::string& host);

// Waits until the kernel says that `device` runs, which after a link has come up can take a second: until then UCX
// takes no message for the device, though its packets get through. DeadlineExceeded, at `end_ns` (MonotonicNanos),
// names the device, what keeps it from running, and what to do. OK for a device that does not exist.
absl::Status AwaitRunning(const std::string& device, std::int64_t end_ns);

// Whether a numeric address is one that only this node can reach.
bool IsLoopbackAddress(absl::string_view address);

}  // namespace tutti

#endif  // TUTTI_COMM_NETWORK_INTERFACE_H_
