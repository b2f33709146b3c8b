// The server's side of one connection, without the connection: bytes in, bytes out. A session does no input or output
// itself, so that tests and the fuzzer reach everything that a stranger can reach.
#ifndef TUTTI_STORE_SERVER_SESSION_H_
#define TUTTI_STORE_SERVER_SESSION_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/message.h"

namespace tutti {

class ServerSession;

// Bytes for a client: `head`, and behind it `value`, if there is one. All answers that carry a value share it: one for
// each rank of a large job would need more memory than the rank that serves has.
struct SessionBytes {
  std::size_t size() const { return head.size() + (value != nullptr ? value->size() : 0); }

  std::string head;
  std::shared_ptr<const std::string> value = nullptr;
};

// The table that some sessions of a server share. Not thread-safe: a server is one thread.
class ServerTable {
 public:
  // The session hears which ranks are gone.
  void Enter(ServerSession& session);
  // Answers `request` through `session`, now or, for a Get that waits, when the key is set. A rank joins with its first
  // request.
  void Handle(ServerSession& session, StoreRequest request);
  // Forgets what `session` waits for. When `session` was the last session of a rank, that rank is gone, and all other
  // clients hear of its end.
  void Leave(ServerSession& session);
  // Declares that `rank` has ended. A rank that had not joined is gone now; the end of a rank that had joined is told
  // by Leave, after all that the rank has sent.
  void RankHasEnded(Rank rank);
  // Whether all of `size` ranks have joined or ended, and are gone.
  bool AllAreGone(int size) const;
  void ForgetValues() { values_.clear(); }
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

  // Entries exist only for ranks that have come, because a world may claim any size.
  absl::flat_hash_map<Rank, int> joined_sessions_;  // number of sessions, of ranks that have joined or ended; 0: gone
  absl::flat_hash_set<ServerSession*> sessions_;    // the sessions that were admitted
  absl::flat_hash_map<std::string, std::shared_ptr<const std::string>> values_;
  absl::flat_hash_map<std::string, std::vector<Waiter>> waiters_;
};

// The tables of one server: one, or one for each program that the ranks run one after another. Not thread-safe.
class ServerTables {
 public:
  ServerTables(const JobKey& job, const TcpStoreServerOptions& options);

  const JobKey& job() const { return job_; }
  // Admits an authenticated client: welcomes the client through `session` and returns the client's table, or returns
  // the reason for a refusal.
  absl::StatusOr<ServerTable*> Admit(ServerSession& session, const ClientHello& client);
  // Takes `session` out of `table`.
  void Leave(ServerSession& session, ServerTable& table);
  // Declares that `rank` has ended, in all programs.
  void RankHasEnded(Rank rank);
  void Close();

 private:
  absl::StatusOr<ServerTable*> TableOf(const ClientHello& client);

  const JobKey job_;
  const bool one_process_per_rank_;
  const bool one_table_per_program_;
  const std::int64_t serving_rank_;
  std::deque<ServerTable> tables_{1};  // in the order of the programs; sessions point into it
  // The processes that have come as each rank, in their order; where all programs share a table, the first alone.
  absl::flat_hash_map<Rank, std::vector<Nonce>> processes_;
  absl::flat_hash_set<Rank> ended_;
};

class ServerSession {
 public:
  // `send` is called with bytes for the client, also while Receive of another session runs; `send` must not end a
  // session. The tables must outlive the session.
  ServerSession(ServerTables& tables, std::function<void(SessionBytes)> send);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  // Takes bytes from the client. After an error the caller sends the bytes that `send` was given, then closes the
  // connection.
  absl::Status Receive(absl::string_view bytes);
  bool authenticated() const { return reader_.has_value(); }
  // Tells that the connection has ended: nothing more will be received or sent.
  void Close();

  void Answer(const StoreResponse& response) { send_({writer_->Seal(Encode(response))}); }
  // Answers the Get `id` by `value`.
  void Answer(std::uint64_t id, std::shared_ptr<const std::string> value) {
    std::string head = writer_->Seal(Encode(StoreResponse{.id = id}), *value);
    send_({std::move(head), std::move(value)});
  }
  // The rank of the client; known once the client is authenticated.
  Rank rank() const { return rank_; }

  // The table's notes on this session.
  std::optional<Rank> joined_as;
  int waiting = 0;  // Gets that wait for their key

 private:
  absl::Status TakeHello();
  absl::Status TakeProof();

  ServerTables& tables_;
  ServerTable* table_ = nullptr;  // null: not admitted, or left
  const std::function<void(SessionBytes)> send_;
  Rank rank_ = 0;
  std::string handshake_;  // bytes received before authentication
  std::string client_hello_;
  std::optional<HandshakeKeys> keys_;
  std::optional<FrameReader> reader_;
  std::optional<FrameWriter> writer_;
};

}  // namespace tutti

#endif  // TUTTI_STORE_SERVER_SESSION_H_
