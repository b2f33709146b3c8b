#include "comm/transport_choice.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "comm/interface_choice.h"
#include "comm/network_interface.h"
#include "comm/node_name.h"

namespace tutti {

absl::StatusOr<std::unique_ptr<Transport>> ChooseTransport(const Bootstrap& bootstrap,
                                                           [[maybe_unused]] std::int64_t end_ns) {
  const int size = bootstrap.identity.size;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  const TransportOptions options = {.region_bytes = config->arena_bytes};
  if (config->transport == "inproc" || (config->transport == "auto" && size == 1)) {
    if (size != 1) {
      return absl::InvalidArgumentError(absl::StrCat("TUTTI_TRANSPORT=inproc joins threads of one process, not the ",
                                                     size, " processes of this job; use ucx"));
    }
    return MakeInprocTransport(MakeInprocHub(1), options);
  }
#ifdef TUTTI_WITH_UCX
  absl::StatusOr<std::string> interface = ChooseInterface(bootstrap, end_ns);
  if (!interface.ok()) return interface.status();
  if (absl::Status runs = AwaitRunning(*interface, end_ns); !runs.ok()) {
    return absl::Status(runs.code(), absl::StrCat("rank ", bootstrap.identity.rank, ": ", runs.message()));
  }
  absl::StatusOr<std::string> node = NodeName();
  if (!node.ok()) return node.status();
  return MakeUcxTransport(
      {.interface = *std::move(interface), .node = *std::move(node), .connections = config->connections}, options);
#else
  return absl::UnimplementedError("this build has no UCX transport; configure with -DTUTTI_UCX=ON");
#endif
}

}  // namespace tutti
