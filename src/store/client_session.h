// The client's side of one connection to a TCP store, after the handshake. Any number of threads may call; the
// session's own thread receives the answers. Waits end at `end_ns` of MonotonicNanos.
#ifndef TUTTI_STORE_CLIENT_SESSION_H_
#define TUTTI_STORE_CLIENT_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "store/frame.h"
#include "store/message.h"
#include "tutti/store.h"

namespace tutti {

// An authenticated connection.
struct ClientLink {
  std::string address;
  UnsharedFd fd;
  FrameReader reader;
  FrameWriter writer;
  std::optional<Rank> serving_rank = std::nullopt;  // the rank in whose process the server runs
};

class ClientSession {
 public:
  // Throws std::system_error where the system gives no thread.
  explicit ClientSession(ClientLink link);
  ~ClientSession();

  const std::string& address() const { return address_; }

  // Sends `request` and returns its answer, which a living server gives at once.
  absl::StatusOr<StoreResponse> Call(StoreRequest request, std::int64_t end_ns);
  // Carries out Store::Get.
  absl::StatusOr<std::string> Await(absl::string_view key, std::int64_t end_ns, Store::OnGone on_gone);

 private:
  using Answer = std::optional<StoreResponse>;

  // Sends `request` under a new id. The result points to the place of the answer, which Take removes.
  absl::StatusOr<Answer*> Begin(StoreRequest& request, std::int64_t end_ns);
  Answer Take(const StoreRequest& request, Answer& answer) TUTTI_REQUIRES(mutex_);
  absl::Status Send(const StoreRequest& request, std::int64_t end_ns);
  absl::Status NotSent(const StoreRequest& request) const;
  void Cancel(std::uint64_t id);

  // The rank that was the first to go after event number `told`, which becomes the number of that rank's event;
  // nullopt: no rank went.
  std::optional<Rank> NextGone(std::uint64_t& told) TUTTI_REQUIRES(mutex_);

  void Receive(FrameReader reader);
  absl::Status Dispatch(FrameReader& reader);
  void Hear(const StoreResponse& news) TUTTI_REQUIRES(mutex_);
  void Lose(const absl::Status& why);
  absl::Status Lost(const absl::Status& why) const TUTTI_REQUIRES(mutex_);

  const std::string address_;
  const std::optional<Rank> serving_rank_;
  const UnsharedFd fd_;
  FrameWriter writer_;  // used by the thread that has set `writing_`

  Mutex mutex_;
  Condition changed_;
  bool writing_ TUTTI_GUARDED_BY(mutex_) = false;
  std::uint64_t next_id_ TUTTI_GUARDED_BY(mutex_) = kUnasked + 1;
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Answer>> answers_ TUTTI_GUARDED_BY(mutex_);
  // Ranks that are gone, each with the number of the event by which it went.
  absl::btree_map<Rank, std::uint64_t> gone_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t events_ TUTTI_GUARDED_BY(mutex_) = 0;
  absl::Status unsent_ TUTTI_GUARDED_BY(mutex_);  // the reason why a request could not be sent
  absl::Status lost_ TUTTI_GUARDED_BY(mutex_);

  std::thread receiver_;  // the last member, because the thread uses all members above
};

}  // namespace tutti

#endif  // TUTTI_STORE_CLIENT_SESSION_H_
