// How the ranks of a job come to share a store that rank 0 serves, when nothing else runs a store for them.
// Waits end at `end_ns` of MonotonicNanos.
#ifndef TUTTI_COMM_BOOTSTRAP_RENDEZVOUS_H_
#define TUTTI_COMM_BOOTSTRAP_RENDEZVOUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/environment.h"
#include "tutti/bootstrap.h"

namespace tutti {

// All ranks are on this node. Rank 0 serves on loopback and leaves address and secret in a file of `directory`, which
// only this user can read. A file that an earlier job has left leads nowhere, or to a server that refuses; the other
// ranks then look again until rank 0 has replaced the file. Rank 0 removes the files of jobs that are dead. `secret`:
// the secret to use instead of a fresh one.
absl::StatusOr<std::shared_ptr<Store>> JoinOnNode(const Identity& identity, const std::optional<JobSecret>& secret,
                                                  const std::string& directory, std::int64_t end_ns);
// The file through which JoinOnNode finds rank 0.
std::string RendezvousFile(const std::string& directory, const Identity& identity);

// Rank 0 serves at `address` ("host:port"), bound to the host of `address`, or to `interface` (network_interface.h; may
// be empty) where the host means no address of this node that other nodes can reach; the other ranks of rank 0's node
// look there, too. Rank 0 waits, for a little more than a minute, while another socket has the port.
absl::StatusOr<std::shared_ptr<Store>> JoinOverNetwork(const Identity& identity, const JobSecret& secret,
                                                       const std::string& address, const std::string& interface,
                                                       std::int64_t end_ns);

// The function of tutti/bootstrap.h, for tests, with the environment as an argument.
absl::StatusOr<std::string> RendezvousAddress(const Environment& environment, const Identity& identity);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_RENDEZVOUS_H_
