#include "comm/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

std::optional<std::string> NumericText(const sockaddr* address, socklen_t bytes) {
  char text[NI_MAXHOST];
  if (::getnameinfo(address, bytes, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return std::nullopt;
  return text;
}

// A numeric address in its usual notation: "::1" for "::0001"; nullopt when `text` is no numeric address.
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

absl::StatusOr<NetworkInterface> FindNetworkInterface(const std::string& text, absl::string_view setting) {
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = AllInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  const std::optional<std::string> address = CanonicalAddress(text);
  for (const NetworkInterface& interface : *interfaces) {
    if (interface.device == text || interface.address == address) return interface;
  }
  const auto describe = [](std::string* out, const NetworkInterface& interface) {
    absl::StrAppend(out, interface.device, " (", interface.address, ")");
  };
  return absl::InvalidArgumentError(absl::StrCat(setting, "=", text,
                                                 " is no network interface or address of this node; there are ",
                                                 absl::StrJoin(*interfaces, ", ", describe)));
}

absl::StatusOr<NetworkInterface> InterfaceTowards(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;  // connect then only looks the route up
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), "9", &hints, &list); error != 0) {
    return absl::NotFoundError(absl::StrCat("the host ", host, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const UniqueFd socket(::socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own = {};
    socklen_t bytes = sizeof(own);
    if (!socket.valid() || ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &bytes) != 0) {
      continue;
    }
    const std::optional<std::string> address = NumericText(reinterpret_cast<sockaddr*>(&own), bytes);
    if (address) return FindNetworkInterface(*address, "the route to " + host);
  }
  return absl::UnavailableError(absl::StrCat("no route leads to the host ", host));
}

bool IsLoopbackAddress(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1" || absl::StartsWith(address, "::ffff:127.");
}

}  // namespace tutti
