// How the ranks of a job come to share a store when nothing else runs one for them: rank 0 serves it.
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
// only this user can read. A file that an earlier job has left leads nowhere, or to a server that refuses; the others
// then look again until rank 0 has replaced it. Rank 0 removes the files of jobs that are dead. `secret`: use this one
// instead of a fresh one.
absl::StatusOr<std::shared_ptr<Store>> JoinOnNode(const Identity& identity, const std::optional<JobSecret>& secret,
                                                  const std::string& directory, std::int64_t end_ns);
// The file through which that happens.
std::string RendezvousFile(const std::string& directory, const Identity& identity);

// Rank 0 serves at `address` ("host:port"), bound to `interface` (network_interface.h) or, when that is empty,
// to the host of `address`.
absl::StatusOr<std::shared_ptr<Store>> JoinOverNetwork(const Identity& identity, const JobSecret& secret,
                                                       const std::string& address, const std::string& interface,
                                                       std::int64_t end_ns);

// Where rank 0 of a job that spans nodes serves: TUTTI_RENDEZVOUS, MASTER_ADDR with the port after MASTER_PORT (which
// may belong to torchrun), or Slurm's first node with a port made of the job's id. InvalidArgument when nothing says.
absl::StatusOr<std::string> RendezvousAddress(const Environment& environment, const Identity& identity);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_RENDEZVOUS_H_
