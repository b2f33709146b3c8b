#include "comm/transport_choice.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/config.h"
#include "comm/interface_choice.h"
#include "comm/network_interface.h"
#include "comm/node_name.h"
#include "comm/runtime.h"

namespace tutti {
namespace {

#ifdef TUTTI_WITH_UCX
// Waits a while for an interface that does not run, and says so where the interface then still does not: the transport
// goes on all the same, because the kernel may let packets through. The wait leaves half of the time to the ranks that
// meanwhile wait for this one.
void AwaitRunningAWhile(const std::string& device, Rank rank, std::int64_t end_ns) {
  constexpr absl::Duration kMax = absl::Seconds(10);
  const absl::Status runs = AwaitRunning(device, NanosIn(std::min(kMax, LeftUntil(end_ns) / 2)));
  if (runs.ok()) return;
  const std::string line = absl::StrCat("tutti: rank ", rank, ": ", runs.message(), "\n");
  std::fputs(line.c_str(), stderr);
}
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ChooseTransport(const Bootstrap& bootstrap,
                                                           [[maybe_unused]] std::int64_t end_ns) {
  const int size = bootstrap.identity.size;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  const TransportOptions options = {.region_bytes = config->arena_bytes};
  if (config->transport == "inproc" || (config->transport == "auto" && size == 1)) {
    if (size != 1) {
      return FailSetUp(bootstrap, absl::InvalidArgumentError(
                                      absl::StrCat("TUTTI_TRANSPORT=inproc joins threads of one process, not the ",
                                                   size, " processes of this job; use ucx")));
    }
    return MakeInprocTransport(MakeInprocHub(1), options);
  }
#ifdef TUTTI_WITH_UCX
  absl::StatusOr<InterfaceChoice> interface = ChooseInterface(bootstrap, end_ns);
  if (!interface.ok()) return interface.status();
  if (interface->spans_nodes) AwaitRunningAWhile(interface->device, bootstrap.identity.rank, end_ns);
  absl::StatusOr<std::string> node = NodeName();
  if (!node.ok()) return node.status();
  return MakeUcxTransport(
      {.interface = std::move(interface->device), .node = *std::move(node), .connections = config->connections},
      options);
#else
  return FailSetUp(bootstrap,
                   absl::UnimplementedError("this build has no UCX transport; configure with -DTUTTI_UCX=ON"));
#endif
}

}  // namespace tutti
