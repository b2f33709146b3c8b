// Stores: a small shared key-value table through which the ranks of a job find each other.
//
//   std::shared_ptr<Store> store = MakeMemoryStore();
//   store->Set("address/0", "10.0.0.1:4711");
//   absl::StatusOr<std::string> address = store->Get("address/0", absl::Now() + absl::Seconds(30));
//
// Used at set-up, for blobs of some kilobytes; an iteration of training never touches a store.
#ifndef TUTTI_STORE_H_
#define TUTTI_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

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

// Keys and values are arbitrary bytes. Every function is thread-safe and ends: a store that several processes
// share returns Unavailable, naming itself, when the others can no longer be reached.
class Store {
 public:
  virtual ~Store() = default;

  // Replaces the value of `key`; every Get that waits for it returns.
  virtual absl::Status Set(absl::string_view key, absl::string_view value) = 0;
  // The value of `key`, as soon as there is one. DeadlineExceeded names the key; a deadline that has passed
  // means "look, do not wait".
  virtual absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) = 0;
  // Adds atomically to the decimal integer under `key` (0 when there is none) and returns the sum.
  // FailedPrecondition when the value is no integer, OutOfRange when the sum does not fit.
  virtual absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta) = 0;
  // Removes `key`; OK when it does not exist.
  virtual absl::Status Delete(absl::string_view key) = 0;
};

// For threads of one process.
std::shared_ptr<Store> MakeMemoryStore();

// For processes that share a file system: one file per key in `directory`, which is made (mode 0700) when missing.
// The directory must be new to the job: what is in it is believed. PermissionDenied when it belongs to, or may be
// written by, another user. Waiting polls, with growing pauses of at most 20 ms.
absl::StatusOr<std::shared_ptr<Store>> MakeFileStore(absl::string_view directory);

// A part of `base` of its own: every key gets `prefix` in front (and both count towards kMaxKeyBytes).
std::shared_ptr<Store> MakePrefixStore(std::shared_ptr<Store> base, absl::string_view prefix);

// What both ends of a TCP store must agree on. A mismatch is refused with an error that names it.
struct JobKey {
  JobSecret secret;
  std::string job_id;
  int size = 1;  // ranks of the world
};

struct TcpStoreServerOptions {
  // A numeric address or a host name of this machine. Keep the default when all ranks are on this machine;
  // otherwise the address of the interface that the job uses.
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any free port
  // Refuse a second process that joins as the same rank: it belongs to a later job that found this one's address.
  bool one_process_per_rank = false;
  // Connections that have not proved yet that they hold the secret: beyond this many the oldest is dropped.
  int max_half_open = 64;
  absl::Duration handshake_timeout = absl::Seconds(10);
};

// The table behind the TCP stores of a job, with a thread of its own; the launcher runs one, or rank 0 does.
// Before anything else, both sides prove by HMAC-SHA256 over fresh nonces that they hold the job secret; afterwards
// every frame carries a MAC. Contents are authenticated, not encrypted. See docs/decisions/0003-store-protocol.md.
class TcpStoreServer {
 public:
  // InvalidArgument names the host, Unavailable the address that cannot be bound.
  static absl::StatusOr<std::unique_ptr<TcpStoreServer>> Start(const JobKey& job,
                                                               const TcpStoreServerOptions& options = {});
  // Closes every connection; clients get Unavailable.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  // "127.0.0.1:40123", "[::1]:40123".
  std::string address() const;

 private:
  class Impl;
  explicit TcpStoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The store of a server at `address` ("host:port", "[v6]:port") for `rank`. Retries until the deadline while nobody
// listens there (DeadlineExceeded then names the address and the last reason). PermissionDenied when the server holds
// another secret; FailedPrecondition when the server is of another job, size or version; AlreadyExists
// when it admits one process per rank and another one is there as `rank`.
absl::StatusOr<std::shared_ptr<Store>> ConnectTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                       absl::Time deadline);

}  // namespace tutti

#endif  // TUTTI_STORE_H_
