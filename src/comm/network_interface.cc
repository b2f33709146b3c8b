#include "comm/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "base/clock.h"
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

// The bytes of a numeric address, 4 or 16 of them, in the order of the network; empty when `text` is no such address.
std::string AddressBytes(const std::string& text) {
  char bytes[sizeof(in6_addr)];
  if (::inet_pton(AF_INET, text.c_str(), bytes) == 1) return {bytes, sizeof(in_addr)};
  if (::inet_pton(AF_INET6, text.c_str(), bytes) == 1) return {bytes, sizeof(in6_addr)};
  return "";
}

// "10.0.0.0/24": the addresses of which the first `bits` bits are those of `bytes`.
struct Subnet {
  std::string bytes;
  int bits = 0;

  bool Contains(const std::string& address) const {
    const std::string other = AddressBytes(address.substr(0, address.find('%')));  // fe80::1%eth0
    if (other.size() != bytes.size()) return false;
    const std::size_t whole = static_cast<std::size_t>(bits / 8);
    if (other.compare(0, whole, bytes, 0, whole) != 0) return false;
    const int rest = bits % 8;
    return rest == 0 || ((other[whole] ^ bytes[whole]) & (0xff << (8 - rest)) & 0xff) == 0;
  }
};

std::optional<Subnet> ParseSubnet(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) return std::nullopt;
  Subnet subnet{.bytes = AddressBytes(text.substr(0, slash))};
  if (subnet.bytes.empty() || !absl::SimpleAtoi(text.substr(slash + 1), &subnet.bits) || subnet.bits < 0 ||
      subnet.bits > static_cast<int>(8 * subnet.bytes.size())) {
    return std::nullopt;
  }
  return subnet;
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

std::string Describe(absl::Span<const NetworkInterface> interfaces) {
  return absl::StrJoin(interfaces, ", ", [](std::string* out, const NetworkInterface& interface) {
    absl::StrAppend(out, interface.device, " (", interface.address, ")");
  });
}

}  // namespace

absl::StatusOr<NetworkInterface> FindNetworkInterface(const std::string& text, absl::string_view setting) {
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = AllInterfaces();
  if (!interfaces.ok()) return interfaces.status();
  const std::optional<std::string> address = CanonicalAddress(text);
  const std::optional<Subnet> subnet = ParseSubnet(text);
  std::vector<NetworkInterface> found;
  for (const NetworkInterface& interface : *interfaces) {
    if (interface.device == text || interface.address == address) return interface;
    if (subnet && subnet->Contains(interface.address)) found.push_back(interface);
  }
  if (found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(setting, "=", text,
                                                   subnet ? " is a subnet in which this node has no address"
                                                          : " is no network interface, address or subnet of this node",
                                                   "; there are ", Describe(*interfaces)));
  }
  const bool several = std::any_of(found.begin(), found.end(),
                                   [&](const NetworkInterface& other) { return other.device != found[0].device; });
  if (!several) return found[0];
  return absl::InvalidArgumentError(absl::StrCat(setting, "=", text,
                                                 " has addresses of several interfaces of this node: ", Describe(found),
                                                 "; name one of them, or a smaller subnet"));
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

std::vector<NetworkInterface> OwnAddresses(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const absl::StatusOr<std::vector<NetworkInterface>> interfaces = AllInterfaces();
  if (!interfaces.ok() || ::getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, ::freeaddrinfo);
  std::vector<NetworkInterface> own;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    const std::optional<std::string> address = NumericText(entry->ai_addr, entry->ai_addrlen);
    if (!address || IsLoopbackAddress(*address)) continue;
    const auto found = std::find_if(interfaces->begin(), interfaces->end(),
                                    [&](const NetworkInterface& interface) { return interface.address == address; });
    if (found != interfaces->end()) own.push_back(*found);
  }
  std::stable_partition(own.begin(), own.end(),
                        [](const NetworkInterface& interface) { return !absl::StrContains(interface.address, ':'); });
  return own;
}

absl::Status AwaitRunning(const std::string& device, std::int64_t end_ns) {
  constexpr absl::Duration kPause = absl::Milliseconds(10);
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request = {};
  device.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
  while (socket.valid() && ::ioctl(socket.get(), SIOCGIFFLAGS, &request) == 0) {
    const bool is_up = (request.ifr_flags & IFF_UP) != 0;
    if (is_up && (request.ifr_flags & IFF_RUNNING) != 0) break;
    if (MonotonicNanos() >= end_ns) {
      return absl::DeadlineExceededError(absl::StrCat(
          "interface ", device,
          is_up ? " is up, but does not run: no cable or peer is at its other end, or its link is not ready; "
                : " is down; ",
          is_up ? absl::StrCat("ip link show ", device, " tells more")
                : absl::StrCat("ip link set ", device, " up brings it up"),
          ", and TUTTI_INTERFACE names another interface"));
    }
    absl::SleepFor(kPause);
  }
  return absl::OkStatus();
}

bool IsLoopbackAddress(absl::string_view address) {
  return absl::StartsWith(address, "127.") || address == "::1" || absl::StartsWith(address, "::ffff:127.");
}

}  // namespace tutti
