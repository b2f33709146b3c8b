#include "comm/bootstrap_rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
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
constexpr absl::string_view kOnThisNode = " (all ranks are taken to be on this node, and to run as this user)";

// Rank 0's own use of the store that it serves.
struct Served {
  std::unique_ptr<TcpStoreServer> server;
  std::shared_ptr<Store> client;  // destroyed before the server
};

absl::StatusOr<std::shared_ptr<Store>> Serve(const JobKey& job, const TcpStoreServerOptions& options,
                                             std::string& address, absl::Time deadline) {
  auto served = std::make_shared<Served>();
  absl::StatusOr<std::unique_ptr<TcpStoreServer>> server = TcpStoreServer::Start(job, options);
  if (!server.ok()) return server.status();
  served->server = *std::move(server);
  address = served->server->address();
  absl::StatusOr<std::shared_ptr<Store>> client = ConnectTcpStore(address, job, 0, deadline);
  if (!client.ok()) return client.status();
  served->client = *std::move(client);
  Store* store = served->client.get();
  return std::shared_ptr<Store>(std::move(served), store);
}

// One attempt to find rank 0 through its file.
absl::StatusOr<std::shared_ptr<Store>> Follow(const std::string& path, const Identity& identity,
                                              const std::optional<JobSecret>& secret, absl::Time deadline) {
  absl::StatusOr<std::string> content = ReadPrivateFile(path, kMaxFileBytes);
  if (!content.ok()) return content.status();
  const std::pair<std::string, std::string> lines = absl::StrSplit(*content, absl::MaxSplits('\n', 1));
  absl::StatusOr<JobSecret> fresh = ParseJobSecret(lines.second);
  if (!fresh.ok()) return absl::NotFoundError(absl::StrCat(path, ": ", fresh.status().message()));
  return TryTcpStore(lines.first, StoreKey(identity, secret.value_or(*fresh)), identity.rank, deadline);
}

// Whether looking again can help: not when a live server of this very job says no.
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
  return absl::StrCat(directory, "/", identity.launcher, "-", absl::BytesToHexString(View(hash).substr(0, 12)));
}

absl::StatusOr<std::shared_ptr<Store>> JoinOnNode(const Identity& identity, const std::optional<JobSecret>& secret,
                                                  const std::string& directory, absl::Time deadline) {
  const JobSecret fresh = secret.value_or(RandomJobSecret());
  const JobKey job = StoreKey(identity, fresh);
  const std::string path = RendezvousFile(directory, identity);
  if (identity.rank == 0) {
    std::string address;
    absl::StatusOr<std::shared_ptr<Store>> store = Serve(job, {.one_process_per_rank = true}, address, deadline);
    if (!store.ok()) return store;
    if (absl::Status status = WritePrivateFile(path, absl::StrCat(address, "\n", ToHex(fresh), "\n")); !status.ok()) {
      return status;
    }
    // The file has done its work when everybody has come.
    const std::string what = absl::StrCat("joining job '", job.job_id, "' of ", identity.size, " ranks");
    absl::Status joined = (*store)->Set("joined/0", "");
    joined.Update(GetFromAll(**store, "joined/", identity.size, deadline, LateRanksOnStderr(what, deadline)).status());
    ::unlink(path.c_str());
    if (joined.ok()) return store;
    return absl::Status(joined.code(), absl::StrCat(what, ": ", joined.message(), kOnThisNode));
  }
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = Follow(path, identity, secret, deadline);
    if (store.ok()) {
      absl::Status status = (*store)->Set(absl::StrCat("joined/", identity.rank), "");
      if (!status.ok()) return status;
      return store;
    }
    if (!MayComeYet(store.status())) return store;
    if (absl::Now() + pause > deadline) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", identity.rank, " has not found rank 0 of job '",
                                                      job.job_id, "' in time", kOnThisNode, ": ",
                                                      store.status().message()));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(50));
  }
}

absl::StatusOr<std::shared_ptr<Store>> JoinOverNetwork(const Identity& identity, const JobSecret& secret,
                                                       const std::string& address, const std::string& interface,
                                                       absl::Time deadline) {
  auto parts = SplitAddress(address);
  if (!parts.ok()) return parts.status();
  const JobKey job = StoreKey(identity, secret);
  if (identity.rank != 0) return ConnectTcpStore(address, job, identity.rank, deadline);
  std::string host = parts->first;
  if (!interface.empty()) {
    absl::StatusOr<NetworkInterface> found = FindNetworkInterface(interface);
    if (!found.ok()) return found.status();
    host = std::move(found->address);
  }
  std::string bound;
  absl::StatusOr<std::shared_ptr<Store>> store = Serve(
      job, {.host = host, .port = static_cast<std::uint16_t>(std::stoi(parts->second)), .one_process_per_rank = true},
      bound, deadline);
  // Debian's /etc/hosts gives a machine's own name an address that only it can reach.
  if (store.ok() && absl::StartsWith(bound, "127.") && parts->first != "localhost" && host != "127.0.0.1") {
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
