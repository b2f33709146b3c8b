#include "comm/bootstrap_rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "comm/bootstrap_exchange.h"
#include "comm/bootstrap_identity.h"
#include "comm/network_interface.h"
#include "store/mac.h"
#include "store/private_file.h"
#include "store/socket.h"
#include "store/tcp_client.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxFileBytes = 1024;
// The longest wait for the end of what is perhaps an earlier job, at the port where the ranks meet.
constexpr absl::Duration kPatience = absl::Seconds(75);
constexpr absl::string_view kOnThisNode =
    " (all ranks are taken to be on this node, and to run as this user; ranks of several nodes meet at "
    "TUTTI_RENDEZVOUS=host:port)";

// The server that rank 0 runs, and rank 0's own client of this server.
struct Served {
  std::unique_ptr<TcpStoreServer> server;
  std::shared_ptr<Store> client;  // destroyed before the server
};

absl::StatusOr<std::shared_ptr<Store>> Serve(const JobKey& job, TcpStoreServerOptions options, std::string& address,
                                             std::int64_t end_ns) {
  options.one_process_per_rank = true;
  options.serving_rank = 0;
  auto served = std::make_shared<Served>();
  absl::StatusOr<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::Start(job, options);
  if (!server.ok()) return server.status();
  served->server = *std::move(server);
  address = served->server->address();
  absl::StatusOr<std::shared_ptr<Store>> client = ConnectTcpStore(address, job, 0, TimeAt(end_ns));
  if (!client.ok()) return client.status();
  served->client = *std::move(client);
  Store* store = served->client.get();
  return std::shared_ptr<Store>(std::move(served), store);
}

// One attempt to find rank 0 through its file.
absl::StatusOr<std::shared_ptr<Store>> Follow(const std::string& path, const Identity& identity,
                                              const std::optional<JobSecret>& secret, std::int64_t end_ns) {
  absl::StatusOr<std::string> content = ReadPrivateFile(path, kMaxFileBytes);
  if (!content.ok()) return content.status();
  const std::pair<std::string, std::string> lines = absl::StrSplit(*content, absl::MaxSplits('\n', 1));
  absl::StatusOr<JobSecret> fresh = ParseJobSecret(lines.second);
  if (!fresh.ok()) return absl::NotFoundError(absl::StrCat(path, ": ", fresh.status().message()));
  return TryTcpStore(lines.first, StoreKey(identity, secret.value_or(*fresh)), identity.rank, end_ns);
}

// The time that is left until `end_ns`, in whole seconds, for a reader.
std::string SecondsUntil(std::int64_t end_ns) {
  return absl::FormatDuration(absl::Ceil(LeftUntil(end_ns), absl::Seconds(1)));
}

// Serves as Serve does, at a port that is given. Waits while another socket has the port: that may be an outgoing
// connection, to which the system gives any port that is free, and which holds the port for a minute after its end.
absl::StatusOr<std::shared_ptr<Store>> ServeAtPort(const JobKey& job, const TcpStoreServerOptions& options,
                                                   std::string& address, std::int64_t end_ns) {
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  const std::int64_t patient_until_ns = std::min(end_ns, NanosIn(kPatience));
  bool told = false;
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = Serve(job, options, address, end_ns);
    if (!absl::IsAlreadyExists(store.status()) || LeftUntil(patient_until_ns) < kPause) return store;
    if (!std::exchange(told, true)) {
      const std::string line = absl::StrCat("tutti: rank 0 waits up to ", SecondsUntil(patient_until_ns),
                                            " for its port: ", store.status().message(), "\n");
      std::fputs(line.c_str(), stderr);
    }
    absl::SleepFor(kPause);
  }
}

absl::Status MeetAll(Store& store, const Identity& identity, std::int64_t end_ns) {
  const std::string what =
      absl::StrCat("joining job '", StoreKey(identity, {}).job_id, "' of ", identity.size, " ranks");
  const absl::Status met = ExchangeUntil(store, "joined", what, identity.rank, identity.size, "", end_ns).status();
  return met.ok() ? met : absl::Status(met.code(), absl::StrCat(met.message(), kOnThisNode));
}

// Connects as ConnectTcpStore does. Where the ranks run one program after another, rank 0's process of the earlier
// program may still serve when this rank's process of the next one comes: waits until that server is gone.
// AlreadyExists when it is still there at `end_ns`; FailedPrecondition when the server is of another job, size or
// version, as that of an earlier job may be, and is still there kPatience after its first answer. DeadlineExceeded when
// it is gone, and no other has come until `end_ns`. A server with another secret is a mistake more often than an
// earlier job: PermissionDenied at once.
absl::StatusOr<std::shared_ptr<Store>> ConnectToNextProgram(const std::string& address, const JobKey& job, Rank rank,
                                                            std::int64_t end_ns) {
  constexpr absl::Duration kPause = absl::Milliseconds(50);
  std::int64_t tells_ns = kNeverNanos, patient_until_ns = end_ns;
  absl::Status refusal;
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = ConnectTcpStore(address, job, rank, TimeAt(end_ns));
    const bool of_another_job = absl::IsFailedPrecondition(store.status());
    if (!of_another_job && !absl::IsAlreadyExists(store.status())) {
      if (refusal.ok() || !absl::IsDeadlineExceeded(store.status())) return store;
      return absl::DeadlineExceededError(absl::StrCat(store.status().message(), "; before that: ", refusal.message()));
    }
    if (refusal.ok()) {
      tells_ns = NanosIn(absl::Seconds(5));
      patient_until_ns = std::min(end_ns, NanosIn(kPatience));
    }
    refusal = store.status();
    const std::int64_t until_ns = of_another_job ? patient_until_ns : end_ns;
    // The server, if it is still there, can answer in a time of kPause after the sleep.
    if (LeftUntil(until_ns) < 2 * kPause) return refusal;
    if (MonotonicNanos() >= tells_ns) {
      tells_ns = kNeverNanos;
      const std::string limit = of_another_job ? absl::StrCat(" up to ", SecondsUntil(until_ns)) : "";
      const std::string line =
          absl::StrCat("tutti: rank ", rank, " waits", limit,
                       " for the end of the program that rank 0 has run before: ", refusal.message(), "\n");
      std::fputs(line.c_str(), stderr);
    }
    absl::SleepFor(kPause);
  }
}

// The host at which rank 0 listens: `host`, where the other ranks look, if that means an address of this node that they
// can reach. Otherwise the interface has the address, because Debian's /etc/hosts gives a machine's own name an address
// that only the machine can reach.
absl::StatusOr<std::string> ListeningHost(const std::string& host, const std::string& interface) {
  const std::vector<NetworkInterface> own = OwnAddresses(host);
  if (interface.empty()) return own.empty() ? host : own[0].address;
  const absl::StatusOr<NetworkInterface> named = FindNetworkInterface(interface);
  if (!named.ok()) return named.status();
  // Loopback in place of a network is a mistake, which JoinOverNetwork tells.
  const bool in_reach = !own.empty() && !IsLoopbackAddress(named->address);
  // Other nodes may know only some of the addresses that `host` means here; they most likely know that of the interface
  // which the user has named.
  const bool chosen =
      std::any_of(own.begin(), own.end(), [&](const NetworkInterface& each) { return each.address == named->address; });
  return in_reach && !chosen ? own[0].address : named->address;
}

bool NamesLoopback(const std::string& host) { return host == "localhost" || host == "127.0.0.1" || host == "::1"; }

// The address at which a rank other than 0 looks for rank 0. Where the host means loopback, as Debian's /etc/hosts has
// it of a machine's own name, the rank is on rank 0's machine, and looks where ListeningHost lets rank 0 listen. A host
// that is spelt as loopback is meant so: it may be the end of a tunnel.
absl::StatusOr<std::string> MeetingAddress(const std::string& host, const std::string& port,
                                           const std::string& interface) {
  if (NamesLoopback(host)) return JoinAddress(host, port);
  const absl::StatusOr<NetworkInterface> towards = InterfaceTowards(host);
  if (!towards.ok() || !IsLoopbackAddress(towards->address)) return JoinAddress(host, port);
  const absl::StatusOr<std::string> listening = ListeningHost(host, interface);
  if (!listening.ok()) return listening.status();
  return JoinAddress(*listening, port);
}

constexpr std::size_t kHashDigits = 24;

// Whether `name` has the form of a rendezvous file's name, such as "mpich-0123456789abcdef01234567".
bool IsRendezvousFile(absl::string_view name) {
  if (name.size() <= kHashDigits || name[name.size() - kHashDigits - 1] != '-') return false;
  const absl::string_view hash = name.substr(name.size() - kHashDigits);
  return std::all_of(hash.begin(), hash.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

// Whether another attempt can succeed: not when a running server of this very job has refused.
bool MayComeYet(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsPermissionDenied(status) || absl::IsAlreadyExists(status);
}

}  // namespace

JobKey StoreKey(const Identity& identity, const JobSecret& secret) {
  return {secret, absl::StrCat(identity.job_id, " epoch ", identity.epoch), identity.size};
}

std::string RendezvousFile(const std::string& directory, const Identity& identity) {
  const auto hash = Sha256(StoreKey(identity, {}).job_id);
  return absl::StrCat(directory, "/", identity.launcher, "-",
                      absl::BytesToHexString(View(hash).substr(0, kHashDigits / 2)));
}

absl::StatusOr<std::shared_ptr<Store>> JoinOnNode(const Identity& identity, const std::optional<JobSecret>& secret,
                                                  const std::string& directory, std::int64_t end_ns) {
  const JobSecret fresh = secret.value_or(RandomJobSecret());
  const JobKey job = StoreKey(identity, fresh);
  const std::string path = RendezvousFile(directory, identity);
  if (identity.rank == 0) {
    std::string address;
    SweepDirectory(directory, IsRendezvousFile);
    absl::StatusOr<std::shared_ptr<Store>> store = Serve(job, {}, address, end_ns);
    if (!store.ok()) return store;
    // The file is held until all ranks have come, and has then done its work. A later job removes files that nobody
    // holds.
    const std::string content = absl::StrCat(address, "\n", ToHex(fresh), "\n");
    absl::StatusOr<UnsharedFd> file = HoldPrivateFile(path, content);
    absl::Status written = file.status();
    if (absl::IsUnimplemented(written)) written = WritePrivateFile(path, content);
    if (!written.ok()) return written;
    const absl::Status met = MeetAll(**store, identity, end_ns);
    if (file.ok()) {
      file = UnsharedFd();
      RemoveUnlessHeld(path);  // a later try of this job may have put a file of its own there
    } else {
      ::unlink(path.c_str());
    }
    if (met.ok()) return store;
    return met;
  }
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = Follow(path, identity, secret, end_ns);
    if (store.ok()) {
      if (absl::Status met = MeetAll(**store, identity, end_ns); !met.ok()) return met;
      return store;
    }
    if (!MayComeYet(store.status())) return store;
    if (LeftUntil(end_ns) < pause) {
      // Rank 0 of an earlier job may have been found until now, but who is refused to the end has found its own.
      const bool refused = absl::IsPermissionDenied(store.status()) || absl::IsAlreadyExists(store.status());
      return absl::Status(refused ? store.status().code() : absl::StatusCode::kDeadlineExceeded,
                          absl::StrCat("rank ", identity.rank,
                                       refused ? " has not been let into job '" : " has not found rank 0 of job '",
                                       job.job_id, "' in time: ", store.status().message(), kOnThisNode));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(50));
  }
}

absl::StatusOr<std::shared_ptr<Store>> JoinOverNetwork(const Identity& identity, const JobSecret& secret,
                                                       const std::string& address, const std::string& interface,
                                                       std::int64_t end_ns) {
  auto parts = SplitAddress(address);
  if (!parts.ok()) return parts.status();
  const auto& [named, port] = *parts;
  const JobKey job = StoreKey(identity, secret);
  if (identity.rank != 0) {
    const absl::StatusOr<std::string> meeting = MeetingAddress(named, port, interface);
    if (!meeting.ok()) return meeting.status();
    return ConnectToNextProgram(*meeting, job, identity.rank, end_ns);
  }
  const absl::StatusOr<std::string> host = ListeningHost(named, interface);
  if (!host.ok()) return host.status();
  std::string bound;
  absl::StatusOr<std::shared_ptr<Store>> store =
      ServeAtPort(job, {.host = *host, .port = static_cast<std::uint16_t>(std::stoi(port))}, bound, end_ns);
  // Debian's /etc/hosts gives a machine's own name an address that only the machine can reach.
  if (store.ok() && !NamesLoopback(named) && IsLoopbackAddress(SplitAddress(bound).value().first)) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank 0 would serve at ", address, ", which is ", bound,
                     " here, where other nodes cannot reach it; set TUTTI_INTERFACE to the interface they can reach"));
  }
  if (store.ok()) return store;
  return absl::Status(store.status().code(), absl::StrCat("rank 0 cannot serve at ", address,
                                                          " (TUTTI_RENDEZVOUS sets the address, "
                                                          "TUTTI_INTERFACE the interface): ",
                                                          store.status().message()));
}

}  // namespace tutti
