// The network interface of a rank whose launcher, and not TUTTI_INTERFACE, says how other nodes are reached.
#ifndef TUTTI_COMM_INTERFACE_CHOICE_H_
#define TUTTI_COMM_INTERFACE_CHOICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/bootstrap.h"

namespace tutti {

// The name of the exchange in which ranks with a route tell each other their places.
inline constexpr absl::string_view kPlacesExchange = "places of nodes";

// What every rank tells the others about its place in the network.
struct RankPlace {
  std::string node;
  // The address of the interface that the rank would use; loopback where its own node serves the store.
  std::string address;
  std::string problem;  // why the rank cannot have the interface that was named; empty: none
};

// The address that tells which interface `rank` uses for ranks of other nodes: the rank's own address, or, where that
// is loopback, the address of a rank of another node, to which the system knows the route. Empty when all ranks are on
// one node. The same error on every rank: InvalidArgument when one of `places` has a problem; FailedPrecondition when
// no rank knows an address that other nodes could reach, where `remedy` ("set TUTTI_INTERFACE") says what to do.
absl::StatusOr<std::string> WayToOthers(const std::vector<RankPlace>& places, Rank rank, absl::string_view remedy);

struct InterfaceChoice {
  // The device that messages between nodes use; empty (loopback) when all ranks are on one node and TUTTI_INTERFACE
  // names nothing.
  std::string device;
  bool spans_nodes = false;  // whether the ranks are on several nodes, or may be
};

// Collective when `bootstrap` has a route: the ranks tell each other their places, so that a world on one node listens
// on loopback alone.
absl::StatusOr<InterfaceChoice> ChooseInterface(const Bootstrap& bootstrap, std::int64_t end_ns);

}  // namespace tutti

#endif  // TUTTI_COMM_INTERFACE_CHOICE_H_
