#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/config.h"
#include "comm/bootstrap_identity.h"
#include "comm/bootstrap_rendezvous.h"
#include "store/mac.h"

namespace tutti {
namespace {

constexpr int kLastPort = 65535;

std::string Bracketed(absl::string_view host) {
  return host.find(':') == host.npos ? std::string(host) : absl::StrCat("[", host, "]");
}

bool IsNumericAddress(const std::string& text) {
  in6_addr address;
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 || ::inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Below the ports that Linux gives to outgoing connections (from 32768), and equal on all ranks.
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
    return absl::StrCat(Bracketed(host), ":", port + 1);
  }
  if (const std::string nodes = value("SLURM_STEP_NODELIST"); identity.launcher == "slurm" && !nodes.empty()) {
    return absl::StrCat(FirstSlurmHost(nodes), ":", PortOf(identity));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the ", identity.size, " ranks are on several nodes (", identity.local_size,
                   " on this one), but nothing says where rank 0 is; set TUTTI_RENDEZVOUS=host:port, "
                   "host being the node of rank 0 and port one that is free there"));
}

absl::StatusOr<std::string> InterfaceAddress(const std::string& interface) {
  if (IsNumericAddress(interface)) return interface;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot list network interfaces: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, ::freeifaddrs);
  std::vector<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (entry->ifa_name != interface) {
        if (family == AF_INET) names.emplace_back(entry->ifa_name);
        continue;
      }
      char text[NI_MAXHOST];
      const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      if (::getnameinfo(entry->ifa_addr, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0)
        return std::string(text);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "TUTTI_INTERFACE=", interface, " is no network interface of this node; there are ", absl::StrJoin(names, ", ")));
}

}  // namespace tutti
