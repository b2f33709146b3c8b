// Parts of errors about a rank on another node that cannot be reached, or no more.
#ifndef TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_
#define TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tutti::ucx {

// Follows the cause of an error.
inline constexpr absl::string_view kNetworkHint =
    "; ranks on several nodes need a network interface on which each reaches the others (TUTTI_INTERFACE, "
    "UcxOptions.interface), and a firewall that lets them";

// Why a connection of a rank is over that the rank has not closed.
inline std::string BrokenBy(int error) {
  return absl::StrCat("its connection broke (", std::strerror(error),
                      "); if the rank lives on, its network has failed");
}

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_NETWORK_HINT_H_
