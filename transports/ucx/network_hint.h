// What to look at when a rank on another node cannot be reached.
#ifndef TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_
#define TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_

#include "absl/strings/string_view.h"

namespace tutti::ucx {

// Follows the cause of an error.
inline constexpr absl::string_view kNetworkHint =
    "; ranks on several nodes need a network interface on which each reaches the others (TUTTI_INTERFACE, "
    "UcxOptions.interface), and a firewall that lets them";

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_
