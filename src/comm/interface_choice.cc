#include "comm/interface_choice.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/config.h"
#include "comm/network_interface.h"
#include "comm/node_name.h"
#include "tutti/version.h"

namespace tutti {
namespace {

// The interface that a setting names, or else the one that leads to the route's host.
absl::StatusOr<NetworkInterface> OwnInterface(const Route& route, const std::string& configured) {
  if (!configured.empty()) return FindNetworkInterface(configured);
  if (!route.interface.empty()) return FindNetworkInterface(route.interface, route.setting);
  absl::StatusOr<NetworkInterface> found = InterfaceTowards(route.host);
  // A failed look-up is no error here: nobody named an interface, and another rank may know the route.
  return found.ok() ? found : NetworkInterface();
}

}  // namespace

absl::StatusOr<std::string> WayToOthers(const std::vector<RankPlace>& places, Rank rank, absl::string_view remedy) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i].problem.empty())
      return absl::InvalidArgumentError(absl::StrCat("rank ", i, ": ", places[i].problem));
  }
  const RankPlace& own = places[rank];
  if (std::all_of(places.begin(), places.end(), [&](const auto& p) { return p.node == own.node; })) return "";
  if (!own.address.empty() && !IsLoopbackAddress(own.address)) return own.address;
  const auto reachable = std::find_if(places.begin(), places.end(), [&](const RankPlace& place) {
    return place.node != own.node && !place.address.empty() && !IsLoopbackAddress(place.address);
  });
  if (reachable != places.end()) return reachable->address;
  const auto other =
      std::find_if(places.begin(), places.end(), [&](const auto& p) { return p.node != places[0].node; }) -
      places.begin();
  std::string loopback;  // equal on all ranks
  for (const std::ptrdiff_t i : {std::ptrdiff_t{0}, other}) {
    const std::string& address = places[static_cast<std::size_t>(i)].address;
    if (loopback.empty() && IsLoopbackAddress(address)) {
      loopback = absl::StrCat(" (that of rank ", i, ", ", address, ", leads to no other node)");
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("ranks 0 and ", other, " are on different nodes, and nothing says which network interface ",
                   "joins them", loopback, ": ", remedy));
}

absl::StatusOr<InterfaceChoice> ChooseInterface(const Bootstrap& bootstrap, std::int64_t end_ns) {
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  if (!bootstrap.route.has_value()) {
    const bool spans_nodes = bootstrap.identity.local_size != bootstrap.identity.size;
    if (config->interface.empty()) return InterfaceChoice{.device = "", .spans_nodes = spans_nodes};
    absl::StatusOr<NetworkInterface> found = FindNetworkInterface(config->interface);
    if (!found.ok()) return found.status();
    return InterfaceChoice{.device = std::move(found->device), .spans_nodes = spans_nodes};
  }
  const absl::StatusOr<NetworkInterface> own = OwnInterface(*bootstrap.route, config->interface);
  const absl::StatusOr<std::string> node = NodeName();
  const absl::Status problem = !node.ok() ? node.status() : own.status();
  const auto& [rank, size] = std::pair(bootstrap.identity.rank, bootstrap.identity.size);
  const std::string mine = absl::StrCat(Version(), "\n", own.ok() ? own->address : "", "\n",
                                        absl::CHexEscape(problem.message()), "\n", node.ok() ? *node : "");
  const absl::StatusOr<std::vector<std::string>> all =
      ExchangeBlobs(*bootstrap.store, kPlacesExchange, rank, size, mine, TimeAt(end_ns));
  if (!all.ok()) return all.status();
  std::vector<RankPlace> places;
  for (const std::string& text : *all) {
    const std::vector<std::string> lines = absl::StrSplit(text, absl::MaxSplits('\n', 3));
    if (lines[0] != Version() || lines.size() != 4) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", places.size(), " has version=\"",
                                                        absl::CHexEscape(lines[0]), "\", rank ", rank, " has ",
                                                        Version(), ": all ranks need one version of Tutti"));
    }
    RankPlace& place = places.emplace_back();
    place.node = lines[3];
    place.address = lines[1];
    if (!absl::CUnescape(lines[2], &place.problem)) place.problem = lines[2];
  }
  const std::string& setting = bootstrap.route->setting;
  const std::string remedy = absl::StrCat("set TUTTI_INTERFACE", setting.empty() ? "" : " or ", setting);
  const absl::StatusOr<std::string> way = WayToOthers(places, rank, remedy);
  if (!way.ok()) return way.status();
  const bool spans_nodes = !way->empty();
  if (own.ok() && (!config->interface.empty() || (spans_nodes && *way == own->address))) {
    return InterfaceChoice{.device = own->device, .spans_nodes = spans_nodes};
  }
  if (!spans_nodes) return InterfaceChoice();
  const absl::StatusOr<NetworkInterface> found = InterfaceTowards(*way);
  if (found.ok() && !IsLoopbackAddress(found->address)) {
    return InterfaceChoice{.device = found->device, .spans_nodes = true};
  }
  return absl::FailedPreconditionError(absl::StrCat("rank ", rank, " has no route to ", *way,
                                                    ", an address of another node of the job",
                                                    found.ok() ? "" : absl::StrCat(" (", found.status().message(), ")"),
                                                    "; ", remedy, " to the interface that other nodes can reach"));
}

}  // namespace tutti
