// Stores: a small shared key-value table through which the ranks of a job find each other.
//
//   const absl::Time deadline = absl::Now() + absl::Seconds(30);
//   std::shared_ptr<Store> store = MakeMemoryStore();
//   absl::Status status = store->Set("address/0", "10.0.0.1:4711", deadline);
//   absl::StatusOr<std::string> address = store->Get("address/0", deadline);
//
// Used at set-up, for blobs of some kilobytes; an iteration of training never touches a store.
#ifndef TUTTI_STORE_H_
#define TUTTI_STORE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"
#include "tutti/job_secret.h"

namespace tutti {

// Limits of every store. Longer keys and values, and empty keys, are InvalidArgument.
inline constexpr std::size_t kMaxKeyBytes = 1024;
inline constexpr std::size_t kMaxValueBytes = 16 << 20;

// Keys and values are arbitrary bytes. Every function is thread-safe and ends by its deadline: DeadlineExceeded names
// the key, and leaves open whether the table has changed. A store that several processes share returns Unavailable,
// naming itself, when the other processes can no longer be reached. Setting the system's clock changes no wait that has
// begun.
//
// A store belongs to the process that made it. In a forked child every function returns FailedPrecondition, and no rank
// notices when the child destroys the store or ends.
class Store {
 public:
  virtual ~Store() = default;

  // Replaces the value of `key`; every Get that waits for `key` returns.
  virtual absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) = 0;

  // Waits until `key` has a value, and returns the value.
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) {
    return Get(key, deadline, [](Rank) { return absl::OkStatus(); });
  }

  // While Get waits, it calls `on_gone` with every rank that is gone: one that had joined this store and of which no
  // process is connected any more, because it has died or has ended in order. Values that such a rank has set stay in
  // the store; it will set no more. Ranks that were gone before the call are told too. When `on_gone` returns an error,
  // Get ends with that error, unless there is a value after all. `on_gone` runs in the calling thread, without a lock,
  // and may use the store. An end is told within a second, by the TCP store at once, and by a memory store never.
  using OnGone = absl::FunctionRef<absl::Status(Rank gone)>;
  virtual absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) = 0;

  // The value that `key` has now. NotFound when there is none.
  virtual absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) = 0;

  // Adds atomically to the decimal integer under `key` (0 when there is none) and returns the sum. Where processes
  // share a directory, a Set or Delete of the same key at the same time may be lost. FailedPrecondition when the value
  // is no integer, OutOfRange when the sum does not fit.
  virtual absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) = 0;

  // Removes `key`; OK when it does not exist.
  virtual absl::Status Delete(absl::string_view key, absl::Time deadline) = 0;
};

// A store for the threads of one process.
std::shared_ptr<Store> MakeMemoryStore();

// A store for processes that share a file system, with one file per key in `directory`. The directory must exist
// (NotFound names it), because one that a node made for itself would not be shared. The directory must be new to the
// job, because its contents are believed. PermissionDenied when it belongs to, or may be written by, another user.
// Waiting polls, with growing pauses of at most 20 ms.
//
// With `rank` the store joins as that rank, so that other ranks hear when it is gone: the process holds a lock on a
// file, which the kernel lifts however the process ends. AlreadyExists when another process has ever joined as `rank`:
// the directory is not new. On a file system without locks no rank hears of another's end.
absl::StatusOr<std::shared_ptr<Store>> MakeFileStore(absl::string_view directory,
                                                     std::optional<Rank> rank = std::nullopt);

// A part of `base` with its own keys: every key gets `prefix` in front (both count towards kMaxKeyBytes). `members` are
// the ranks of `base` that share the part, in which they are rank 0, 1, …; the end of any other rank is not told.
// Empty: all ranks of `base`, under their own numbers.
std::shared_ptr<Store> MakePrefixStore(std::shared_ptr<Store> base, absl::string_view prefix,
                                       std::vector<Rank> members = {});

// The facts that both ends of a TCP store must have alike. A mismatch is refused with an error that names it.
struct JobKey {
  JobSecret secret;
  std::string job_id;
  int size = 1;  // ranks of the world
};

struct TcpStoreServerOptions {
  // A numeric address or a host name of this machine. Keep the default when all ranks are on this machine; otherwise
  // the address of the interface that the job uses.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  // Refuse a second process that joins as the same rank: such a process belongs to a later job that found this job's
  // address.
  bool one_process_per_rank = false;
  // The first processes that join as each rank share a table, the second processes another one, and so on, so that the
  // ranks of a job can run one program after another (sh -c 'train && evaluate'), and a rank whose first program has
  // ended is not taken for one that misses the second. A table is emptied when all ranks have joined it and none is
  // connected any more.
  bool one_table_per_program = false;
  // The rank in whose process the server runs: clients that lose the server then know which rank has ended.
  std::optional<Rank> serving_rank = std::nullopt;
  // The number of connections, besides one for each rank of the job, that may not have proved yet that they hold the
  // secret: beyond it the oldest is dropped.
  int max_half_open = 64;
  absl::Duration handshake_timeout = absl::Seconds(10);
};

// The table behind the TCP stores of a job, with a thread of its own; the launcher runs one, or rank 0 does.
// Before anything else, both sides prove by HMAC-SHA256 over fresh nonces that they hold the job secret; afterwards
// every frame carries a MAC. Contents are authenticated, not encrypted. See docs/decisions/0003-store-protocol.md.
// No other process keeps a connection of the server, neither a child that its process forks nor a program that it
// starts: a process that outlives the server holds neither its port nor its connections open. Destroying a server in a
// forked child does nothing.
class TcpStoreServer {
 public:
  // InvalidArgument names the host, AlreadyExists the address that another socket has, Unavailable one that cannot be
  // bound, ResourceExhausted the limit of the system to raise: each rank of the job needs a descriptor.
  static absl::StatusOr<std::unique_ptr<TcpStoreServer>> Start(const JobKey& job,
                                                               const TcpStoreServerOptions& options = {});
  // Closes every connection; clients get Unavailable.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  // The address at which the server listens, such as "127.0.0.1:40123" or "[::1]:40123".
  std::string address() const;

  // Tells the server that the process of `rank` has ended; for launchers. Otherwise nobody would hear of a rank that
  // ends before it has joined, and the other ranks would wait for it. From now on `rank` is gone (Store::Get), from all
  // tables. Returns at once.
  void RankHasEnded(Rank rank);

 private:
  class Impl;
  explicit TcpStoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Connects `rank` to the server at `address` ("host:port", "[v6]:port"). Retries until the deadline while nobody
// listens there (DeadlineExceeded then names the address and the last reason). PermissionDenied when the server holds
// another secret; FailedPrecondition when the server is of another job, size or version; AlreadyExists when the server
// admits one process per rank and another process has joined as `rank`. Once `rank` has called a function of the store,
// the others hear that it is gone when all its connections have ended.
absl::StatusOr<std::shared_ptr<Store>> ConnectTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                       absl::Time deadline);

}  // namespace tutti

#endif  // TUTTI_STORE_H_
