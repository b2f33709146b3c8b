#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "comm/bootstrap_identity.h"
#include "comm/bootstrap_rendezvous.h"
#include "store/mac.h"
#include "store/socket.h"

namespace tutti {
namespace {

constexpr int kLastPort = 65535;

// A port below those that Linux gives to outgoing connections (from 32768), equal on all ranks of a job.
int PortOf(const Identity& identity) {
  const auto hash = Sha256(identity.job_id);
  return 20000 + (hash[0] | hash[1] << 8) % 10000;
}

}  // namespace

absl::StatusOr<std::string> RendezvousAddress(const Environment& environment, const Identity& identity) {
  const auto value = [&](absl::string_view name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  if (const std::string address = value("TUTTI_RENDEZVOUS"); !address.empty()) return address;
  if (const std::string host = value("MASTER_ADDR"); !host.empty()) {
    const std::string text = value("MASTER_PORT");
    int port = 0;
    if (!absl::SimpleAtoi(text, &port) || port < 1 || port >= kLastPort) {
      return absl::InvalidArgumentError(
          absl::StrCat("MASTER_ADDR is set, but MASTER_PORT=", text, " is no port below ", kLastPort));
    }
    return JoinAddress(host, absl::StrCat(port + 1));
  }
  if (const std::string nodes = value("SLURM_STEP_NODELIST"); identity.launcher == "slurm" && !nodes.empty()) {
    return absl::StrCat(FirstSlurmHost(nodes), ":", PortOf(identity));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the ", identity.size, " ranks are on several nodes (", identity.local_size,
                   " on this one), but nothing says where rank 0 is; set TUTTI_RENDEZVOUS=host:port, "
                   "host being the node of rank 0 and port one that is free there"));
}

absl::StatusOr<std::string> RendezvousAddress(const Identity& identity) {
  return RendezvousAddress(ProcessEnvironment(), identity);
}

}  // namespace tutti
