// Bootstrap: how a process learns its rank and finds the other ranks of its job, from whatever started the process.
//
//   absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment();
//   if (!job.ok()) return job.status();
//   absl::StatusOr<std::vector<std::string>> addresses =
//       ExchangeBlobs(*job->store, "addresses", job->identity.rank, job->identity.size, my_address,
//                     absl::Now() + absl::Seconds(30));
#ifndef TUTTI_BOOTSTRAP_H_
#define TUTTI_BOOTSTRAP_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"
#include "tutti/store.h"

namespace tutti {

// This process among the ranks of its job.
struct Identity {
  Rank rank = 0;
  int size = 1;
  int local_rank = 0;  // this rank's place among the ranks of its node
  int local_size = 1;
  std::string job_id = {};    // equal on all ranks, different for two jobs that run at the same time
  std::string launcher = {};  // "tutti", "torchrun", "openmpi", "pmix", "pmi", "slurm", "horovod" or "single"
  int epoch = 0;              // how often the launcher has restarted the job; 0 where only parts of it are counted
  // Whether no variable says which ranks share a node. Then local_rank and local_size are those of a rank that has a
  // node of its own. Never so in the identity of a Bootstrap: BootstrapFromEnvironment asks the other ranks.
  bool assumes_own_node = false;
  // Whether no variable says which ranks share a node, and all ranks are taken to be on this one.
  bool assumes_all_here = false;

  bool operator==(const Identity&) const = default;
};

// Asks the launchers' variables in this order: TUTTI_RANK, torchrun (RANK with WORLD_SIZE), Open MPI, PMIx, PMI (MPICH,
// Intel MPI), Slurm (only inside a step), Horovod. Inside a Slurm step PMIx does not count, and PMI only where
// MPI_LOCALNRANKS is set, because srun may set PMIX_RANK or PMI_RANK, too. When none of the variables is set, this
// process is a world of one rank. InvalidArgument names the variable that is missing or wrong. The error names two
// variables and their values when RANK or WORLD_SIZE, set neither by torchrun nor by Ray, contradicts a launcher later
// in the list, other than a Slurm step of one task: RANK and WORLD_SIZE may be left from an earlier job.
// Without LOCAL_RANK and LOCAL_WORLD_SIZE (TUTTI_LOCAL_RANK and TUTTI_LOCAL_SIZE beside TUTTI_RANK) all ranks are taken
// to be on this node, unless a variable names a place where ranks of other nodes can be met (TUTTI_STORE,
// TUTTI_RENDEZVOUS or, beside RANK, MASTER_ADDR, other than loopback): see Identity::assumes_own_node.
absl::StatusOr<Identity> IdentityFromEnvironment();

// Checks `rank` and `size`, which a framework took from RANK and WORLD_SIZE: InvalidArgument, naming both variables and
// their values, when another launcher has started this process as another rank or in a world of another size. OK when
// torchrun or Ray has set RANK and WORLD_SIZE: either runs inside other launchers' jobs.
absl::Status CheckOtherLaunchers(Rank rank, int size);

// How a rank reaches ranks of other nodes, unless TUTTI_INTERFACE says so. A world on one node uses loopback, unless
// TUTTI_INTERFACE names another interface.
struct Route {
  std::string interface = {};  // an interface of this node, by device or address; empty: the one that leads to `host`
  std::string setting = {};    // the variable that names `interface`, for error texts: "GLOO_SOCKET_IFNAME"
  std::string host = {};       // a host that every rank can reach, such as the store's server; may be this node
};

// "host:port" where rank 0 of a job that spans nodes serves: TUTTI_RENDEZVOUS, MASTER_ADDR with the port after
// MASTER_PORT (which may belong to torchrun), or Slurm's first node with a port made of the job's id. InvalidArgument
// when no variable names a place.
absl::StatusOr<std::string> RendezvousAddress(const Identity& identity);

struct Bootstrap {
  Identity identity;
  std::shared_ptr<Store> store;
  std::optional<Route> route = {};  // on all ranks or on none; without a route TUTTI_INTERFACE alone names an interface
};

// The key of a job's store, which its server and all ranks must have alike. A launcher that serves the store makes the
// key from the size and job id that it gives to the ranks. A restarted job (another epoch) has another key.
JobKey StoreKey(const Identity& identity, const JobSecret& secret);

// This process's identity, and a store that all ranks of the job share. The store is the first that applies:
//   TUTTI_STORE (`tutti launch` sets it)   the server or directory it names; after N restarts the directory's epoch-N
//                                          (Identity::epoch)
//   all ranks on this node                 a server in rank 0, found through a file that only this user can read
//   several nodes                          a server in rank 0 at TUTTI_RENDEZVOUS, else MASTER_ADDR:MASTER_PORT+1, else
//                                          Slurm's first node; needs a job secret
// Every rank must make equally many calls; each call gets keys of its own. A call that failed may be repeated, on all
// ranks: where some have failed more often, because others were late, those others get the error at once for each call
// that they have missed, and then meet the rest. FailedPrecondition in a child process whose parent called this
// function before the fork. Unavailable names a rank that died or left meanwhile. DeadlineExceeded names the ranks that
// were not found within `timeout` (TUTTI_TIMEOUT when not given); the look-up of a host's name may last longer, as long
// as the system's resolver takes (resolv.conf's timeout and attempts).
absl::StatusOr<Bootstrap> BootstrapFromEnvironment(std::optional<absl::Duration> timeout = std::nullopt);

// Gives every rank the blobs of all ranks, in rank order; a blob has at most kMaxValueBytes - 1 (InvalidArgument).
// `name` is equal on all ranks, and not used by an exchange that some rank has not left yet, or that has failed. Ranks
// are numbered as in `store`; MakePrefixStore makes a store for a part of the ranks. Unavailable names a rank that has
// died or left without giving its blob, about a second after its end. DeadlineExceeded names the missing ranks; rank 0
// names them on stderr before, when the exchange takes long. After an error rank 0, which may serve the store, waits
// for up to half a second more until the others have heard of the error.
absl::StatusOr<std::vector<std::string>> ExchangeBlobs(Store& store, absl::string_view name, Rank rank, int size,
                                                       absl::string_view blob, absl::Time deadline);

// Compares named fields over all ranks; of fields that have one name, the first with the first, the second with the
// second, and so on. InvalidArgument, the same on every rank, when a field differs:
// "rank 2 has bucket_bytes=1048576, rank 0 has 26214400".
absl::Status CheckAgreement(Store& store, absl::string_view name, Rank rank, int size,
                            const std::vector<std::pair<std::string, std::string>>& fields, absl::Time deadline);

}  // namespace tutti

#endif  // TUTTI_BOOTSTRAP_H_
