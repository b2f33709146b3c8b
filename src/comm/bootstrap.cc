#include "tutti/bootstrap.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "comm/bootstrap_rendezvous.h"
#include "comm/node_name.h"
#include "store/private_file.h"
#include "store/socket.h"

namespace tutti {
namespace {

absl::Status NoSecret(absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat(why,
                   ", and there is no job secret. Make one, (umask 077; openssl rand -hex 32 > secret), put it on "
                   "every node, and set TUTTI_JOB_SECRET_FILE to its path"));
}

absl::StatusOr<std::shared_ptr<Store>> JoinNamedStore(const std::string& name, const Identity& identity,
                                                      const std::optional<JobSecret>& secret, std::int64_t end_ns) {
  absl::string_view rest = name;
  if (absl::ConsumePrefix(&rest, "file://")) {
    if (!absl::StartsWith(rest, "/")) {
      return absl::InvalidArgumentError(
          absl::StrCat("TUTTI_STORE=", name, ": expected the path of a directory from the root, file:///directory"));
    }
    // A restarted job finds what its earlier life has left in the directory.
    std::string directory(rest);
    if (identity.epoch > 0) {
      absl::StrAppend(&directory, "/epoch-", identity.epoch);
      ::mkdir(directory.c_str(), 0700);  // MakeFileStore tells what is wrong
    }
    absl::StatusOr<std::shared_ptr<Store>> store = MakeFileStore(directory, identity.rank);
    if (store.ok()) return store;
    absl::string_view remedy;
    if (absl::IsNotFound(store.status())) {
      remedy = "; make it (mkdir -m 700) before the ranks start, on a file system that all of them share";
    } else if (absl::IsAlreadyExists(store.status()) && identity.launcher == "torchrun" &&
               identity.local_size < identity.size) {
      remedy =
          ", and for each restart: torchrun does not number those of a job on several nodes; without TUTTI_STORE, rank "
          "0 serves a store for each life of the job";
    }
    return absl::Status(store.status().code(),
                        absl::StrCat("TUTTI_STORE=", name, ": ", store.status().message(), remedy));
  }
  if (!absl::ConsumePrefix(&rest, "tcp://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("TUTTI_STORE=", name, ": expected tcp://host:port or file:///directory"));
  }
  if (!secret) return NoSecret("TUTTI_STORE names a server");
  return ConnectTcpStore(rest, StoreKey(identity, *secret), identity.rank, TimeAt(end_ns));
}

absl::StatusOr<std::shared_ptr<Store>> Join(const Identity& identity, std::int64_t end_ns) {
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  if (identity.size == 1) return MakeMemoryStore();
  absl::StatusOr<std::optional<JobSecret>> secret = JobSecretFromEnvironment();
  if (!secret.ok()) return secret.status();
  if (!config->store.empty()) return JoinNamedStore(config->store, identity, *secret, end_ns);
  if (identity.local_size == identity.size) {
    absl::StatusOr<std::string> directory = RuntimeDirectory();
    if (!directory.ok()) return directory.status();
    return JoinOnNode(identity, *secret, *directory, end_ns);
  }
  absl::StatusOr<std::string> address = RendezvousAddress(identity);
  if (!address.ok()) return address.status();
  if (!secret->has_value()) return NoSecret(absl::StrCat("the ranks meet at ", *address, ", in reach of other nodes"));
  return JoinOverNetwork(identity, **secret, *address, config->interface, end_ns);
}

// Finds this rank's place among the ranks of its node, where the launcher has not said it, by asking all ranks.
absl::Status FindPlaceOnNode(Store& store, Identity& identity, std::int64_t end_ns) {
  const absl::StatusOr<std::string> node = NodeName();
  if (!node.ok()) return node.status();
  const absl::StatusOr<std::vector<std::string>> nodes =
      ExchangeBlobs(store, "nodes of ranks", identity.rank, identity.size, *node, TimeAt(end_ns));
  if (!nodes.ok()) return nodes.status();
  const auto own = nodes->begin() + identity.rank;
  identity.local_rank = static_cast<int>(std::count(nodes->begin(), own, *own));
  identity.local_size = static_cast<int>(std::count(nodes->begin(), nodes->end(), *own));
  identity.assumes_own_node = false;
  return absl::OkStatus();
}

// The way to other nodes of a job that spans nodes: through the host that serves the job's store, if one does.
std::optional<Route> RouteOf(const Identity& identity) {
  if (identity.local_size == identity.size) return std::nullopt;
  const absl::StatusOr<Config>& config = LoadConfig();
  absl::string_view name = config->store;
  absl::StatusOr<std::string> address = std::string(name);
  if (name.empty()) {
    address = RendezvousAddress(identity);
  } else if (absl::ConsumePrefix(&name, "tcp://")) {
    address = std::string(name);
  }
  const auto parts = address.ok() ? SplitAddress(*address) : address.status();
  return parts.ok() ? Route{.host = parts->first} : Route();  // a directory names no host
}

// The store that this process has joined, which stays until the process ends: rank 0 may be done with the store before
// the other ranks are, and a second call of BootstrapFromEnvironment must meet the other ranks' second calls, not a
// server that is about to close.
struct Joined {
  // Returns the bootstrap of the next call of BootstrapFromEnvironment, in whose store no other call has keys.
  Bootstrap NextCall() TUTTI_REQUIRES(mutex) {
    return {job.identity, MakePrefixStore(job.store, absl::StrCat("call/", calls++, "/")), job.route};
  }

  const MakerProcess process;
  Mutex mutex;
  Condition ended;
  bool joining TUTTI_GUARDED_BY(mutex) = false;  // a thread is about to join
  // The identity and store of the last attempt, which the thread that joins alone uses. The store is kept after a
  // failure, because to leave it would tell the other ranks that this rank is gone.
  Bootstrap reached;
  Bootstrap job TUTTI_GUARDED_BY(mutex);
  int calls TUTTI_GUARDED_BY(mutex) = 0;
};

// A thread's turn to join, during which others wait in Joined::ended. The end of the object ends the turn, whatever
// comes of it.
class Turn {
 public:
  explicit Turn(Joined& joined) : joined_(joined) {}
  ~Turn() {
    const MutexLock lock(joined_.mutex);
    joined_.joining = false;
    joined_.ended.NotifyAll();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Joined& joined_;
};

// `reached` is the store of the last attempt to join, if any, and becomes that of this attempt.
absl::StatusOr<Bootstrap> JoinJob(Bootstrap& reached, std::int64_t end_ns) {
  absl::StatusOr<Identity> identity = IdentityFromEnvironment();
  if (!identity.ok()) return identity.status();
  if (identity->rank == 0) WarnOfUnknownVariables();
  // An attempt has keys of its own in the store, where a failed one leaves what ends it on ranks that come late: see
  // docs/decisions/0040.
  const auto begin_attempt = [&] {
    return reached.store->Add(absl::StrCat("attempts/", identity->rank), 1, TimeAt(end_ns));
  };
  // Rank 0 may serve the store of the earlier identity at the port where ranks meet now.
  if (!(reached.identity == *identity)) reached = {};
  absl::StatusOr<std::int64_t> attempt = absl::NotFoundError("no store was reached before");
  if (reached.store != nullptr) attempt = begin_attempt();
  if (!attempt.ok()) {
    absl::StatusOr<std::shared_ptr<Store>> joined = Join(*identity, end_ns);
    if (!joined.ok()) return joined.status();
    reached = {*identity, *std::move(joined)};
    attempt = begin_attempt();
  }
  if (!attempt.ok()) return attempt.status();
  const std::shared_ptr<Store> store = MakePrefixStore(reached.store, absl::StrCat("attempt/", *attempt, "/"));
  absl::Status agreed = CheckAgreement(*store, "bootstrap", identity->rank, identity->size,
                                       {{"version", TUTTI_VERSION},
                                        {"job_id", identity->job_id},
                                        {"local_rank", identity->assumes_own_node ? "not set" : "set"}},
                                       TimeAt(end_ns));
  if (!agreed.ok()) return agreed;
  if (identity->assumes_own_node) {
    if (absl::Status found = FindPlaceOnNode(*store, *identity, end_ns); !found.ok()) return found;
  }
  std::optional<Route> route = RouteOf(*identity);
  return Bootstrap{*std::move(identity), store, std::move(route)};
}

}  // namespace

absl::StatusOr<Bootstrap> BootstrapFromEnvironment(std::optional<absl::Duration> timeout) {
  static Joined joined;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  if (!joined.process.is_this()) {
    return absl::FailedPreconditionError(
        "this process was forked by one that had joined a job already; a rank is a program of its own: start it by "
        "exec, or fork before the first BootstrapFromEnvironment");
  }
  if (timeout.has_value() && *timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("BootstrapFromEnvironment: timeout ", absl::FormatDuration(*timeout), " must be positive"));
  }
  const std::int64_t end_ns = NanosIn(timeout.value_or(config->timeout));
  {
    const MutexLock lock(joined.mutex);
    if (!joined.ended.WaitUntil(joined.mutex, end_ns, [&]() TUTTI_REQUIRES(joined.mutex) { return !joined.joining; })) {
      return absl::DeadlineExceededError(
          "BootstrapFromEnvironment: another thread of this process still waits for the other ranks of the job");
    }
    if (joined.job.store != nullptr) return joined.NextCall();
    joined.joining = true;
  }
  const Turn turn(joined);
  absl::StatusOr<Bootstrap> job = JoinJob(joined.reached, end_ns);
  if (!job.ok()) return job.status();
  const MutexLock lock(joined.mutex);
  joined.job = *std::move(job);
  return joined.NextCall();
}

}  // namespace tutti
