// The server's side of one connection, without the connection: bytes in, bytes out. A session does no input or output
// itself, so that tests and the fuzzer reach everything that a stranger can reach.
#ifndef TUTTI_STORE_SERVER_SESSION_H_
#define TUTTI_STORE_SERVER_SESSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/message.h"

namespace tutti {

class ServerSession;

// The table that the sessions of one server share. Not thread-safe: a server is one thread.
class ServerTable {
 public:
  ServerTable(const JobKey& job, const TcpStoreServerOptions& options);

  const JobKey& job() const { return job_; }
  // Admits an authenticated client to the table: welcomes the client through `session`, or returns the reason for a
  // refusal. An admitted client hears which ranks are gone.
  absl::Status Admit(ServerSession& session, const ClientHello& client);
  // Answers `request` through `session`, now or, for a Get that waits, when the key is set. A rank joins with its first
  // request.
  void Handle(ServerSession& session, StoreRequest request);
  // Forgets what `session` waits for. When `session` was the last session of a rank, that rank is gone, and all other
  // clients hear of its end.
  void Leave(ServerSession& session);
  // Declares that `rank` has ended. A rank that had not joined is gone now; the end of a rank that had joined is told
  // by Leave, after all that the rank has sent.
  void RankHasEnded(Rank rank);
  // Stops all news to clients: connections that close from now on mean the end of the server, not of ranks.
  void Close() { sessions_.clear(); }

 private:
  struct Waiter {
    ServerSession* session;
    std::uint64_t id;
  };

  void Join(ServerSession& session);
  void TellAll(const StoreResponse& news);
  void Put(const std::string& key, std::string value);
  void Cancel(ServerSession& session, std::uint64_t id);

  const JobKey job_;
  const bool one_process_per_rank_;
  const std::int64_t serving_rank_;
  // Entries exist only for ranks that have come, because a world may claim any size.
  absl::flat_hash_map<Rank, Nonce> processes_;      // the process that joined first as each rank
  absl::flat_hash_map<Rank, int> joined_sessions_;  // number of sessions, of ranks that have joined or ended; 0: gone
  absl::flat_hash_set<ServerSession*> sessions_;    // the sessions that were admitted
  absl::flat_hash_map<std::string, std::string> values_;
  absl::flat_hash_map<std::string, std::vector<Waiter>> waiters_;
};

class ServerSession {
 public:
  // `send` is called with bytes for the client, also while Receive of another session runs; `send` must not end a
  // session. The table must outlive the session.
  ServerSession(ServerTable& table, std::function<void(std::string)> send);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  // Takes bytes from the client. After an error the caller sends the bytes that `send` was given, then closes the
  // connection.
  absl::Status Receive(absl::string_view bytes);
  bool authenticated() const { return reader_.has_value(); }
  // Tells that the connection has ended: nothing more will be received or sent.
  void Close() { table_.Leave(*this); }

  void Answer(const StoreResponse& response) { send_(writer_->Seal(Encode(response))); }
  // The rank of the client; known once the client is authenticated.
  Rank rank() const { return rank_; }

  // The table's notes on this session.
  std::optional<Rank> joined_as;
  int waiting = 0;  // Gets that wait for their key

 private:
  absl::Status TakeHello();
  absl::Status TakeProof();

  ServerTable& table_;
  const std::function<void(std::string)> send_;
  Rank rank_ = 0;
  std::string handshake_;  // bytes received before authentication
  std::string client_hello_;
  std::optional<HandshakeKeys> keys_;
  std::optional<FrameReader> reader_;
  std::optional<FrameWriter> writer_;
};

}  // namespace tutti

#endif  // TUTTI_STORE_SERVER_SESSION_H_
