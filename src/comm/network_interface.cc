#include "comm/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tutti {
namespace {

std::optional<std::string> NumericText(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return std::nullopt;
  return text;
}

// One way to write a numeric address of many ("::0001"); nullopt for what is none.
std::optional<std::string> CanonicalAddress(const std::string& text) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  if (::getaddrinfo(text.c_str(), nullptr, &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  return NumericText(list->ai_addr, list->ai_addrlen);
}

// All addresses of this node, IPv4 first.
absl::StatusOr<std::vector<NetworkInterface>> AllInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot list network interfaces: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(list, ::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      const std::optional<std::string> address = NumericText(entry->ifa_addr, bytes);
      // A label such as eth0:1 gives a second address of the device a name; no device has a colon in its own.
      const std::string label = entry->ifa_name;
      if (address) interfaces.push_back({label.substr(0, label.find(':')), *address});
    }
  }
  return interfaces;
}

}  // namespace

absl::StatusOr<NetworkInterface> FindNetworkInterface(const std::string& text) {
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = AllInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  const std::optional<std::string> address = CanonicalAddress(text);
  for (const NetworkInterface& interface : *interfaces) {
    if (interface.device == text || interface.address == address) return interface;
  }
  const auto describe = [](std::string* out, const NetworkInterface& interface) {
    absl::StrAppend(out, interface.device, " (", interface.address, ")");
  };
  return absl::InvalidArgumentError(absl::StrCat("TUTTI_INTERFACE=", text,
                                                 " is no network interface or address of this node; there are ",
                                                 absl::StrJoin(*interfaces, ", ", describe)));
}

}  // namespace tutti
