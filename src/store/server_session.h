// The server's side of one connection, without the connection: bytes in, bytes out. It does no input or output of its
// own, so that tests and the fuzzer reach everything a stranger can reach.
#ifndef TUTTI_STORE_SERVER_SESSION_H_
#define TUTTI_STORE_SERVER_SESSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/message.h"

namespace tutti {

class ServerSession;

// The table that the sessions of one server share. Not thread-safe: a server is one thread.
class ServerTable {
 public:
  ServerTable(const JobKey& job, bool one_process_per_rank);

  const JobKey& job() const { return job_; }
  // Whether an authenticated client may use the table.
  absl::Status Admit(const ClientHello& client);
  // Answers through `session`, now or when the key is set.
  void Handle(ServerSession& session, StoreRequest request);
  // Forgets what `session` waits for.
  void Leave(ServerSession& session);

 private:
  struct Waiter {
    ServerSession* session;
    std::uint64_t id;
  };

  void Put(const std::string& key, std::string value);
  void Cancel(ServerSession& session, std::uint64_t id);

  const JobKey job_;
  const bool one_process_per_rank_;
  std::vector<std::optional<Nonce>> processes_;  // by rank: who joined first
  absl::flat_hash_map<std::string, std::string> values_;
  absl::flat_hash_map<std::string, std::vector<Waiter>> waiters_;
};

class ServerSession {
 public:
  // `send` is called with bytes for the client, also while another session's Receive runs. The table outlives this.
  ServerSession(ServerTable& table, std::function<void(std::string)> send);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  // Bytes from the client. An error means: send what was given to `send`, then close the connection.
  absl::Status Receive(absl::string_view bytes);
  bool authenticated() const { return reader_.has_value(); }

  void Answer(const StoreResponse& response) { send_(writer_->Seal(Encode(response))); }
  // Gets that wait for their key.
  int waiting = 0;

 private:
  absl::Status TakeHello();
  absl::Status TakeProof();

  ServerTable& table_;
  const std::function<void(std::string)> send_;
  std::string handshake_;  // bytes received before authentication
  std::string client_hello_;
  std::optional<HandshakeKeys> keys_;
  std::optional<FrameReader> reader_;
  std::optional<FrameWriter> writer_;
};

}  // namespace tutti

#endif  // TUTTI_STORE_SERVER_SESSION_H_
