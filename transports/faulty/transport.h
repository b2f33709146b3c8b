// A transport that injects the faults of a plan (fate.h) into the messages of another transport. A fault happens where
// its message is posted; messages that must leave later wait here, and Sleep returns when a message is due.
#ifndef TUTTI_TRANSPORTS_FAULTY_TRANSPORT_H_
#define TUTTI_TRANSPORTS_FAULTY_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "transports/ended.h"
#include "transports/faulty/endpoint.h"
#include "transports/faulty/fate.h"
#include "transports/forwarding.h"
#include "tutti/faulty_transport.h"

namespace tutti::faulty {

// A Send as its caller asked for it.
struct PostedSend {
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::int64_t bytes = 0;
  Completion* completion = nullptr;
};

class FaultyTransport final : public ForwardingTransport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan)
      : ForwardingTransport(std::move(inner)),
        plan_(std::move(plan)),
        renames_tags_(Has(plan_, FaultKind::kDuplicate)) {}
  ~FaultyTransport() override;

  using Transport::Connect;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override;
  Endpoint& endpoint(Rank peer) override { return endpoints_[static_cast<std::size_t>(peer)]; }
  void RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  bool Progress() override;
  bool Drain() override;
  bool CallEnded() override;
  void Sleep(absl::Time until) override;
  absl::Span<const Loss> Check() override;
  void Disconnect(Rank peer, const absl::Status& cause) override;
  void Shutdown(const absl::Status& cause) override;

  // The functions that endpoints call.
  void PostSend(FaultyEndpoint& to, PostedSend send);
  void PostRecv(FaultyEndpoint& from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion);

 private:
  // A message that leaves later.
  struct Held {
    FaultyEndpoint* to;
    PostedSend send;
    Fate fate;
  };
  // A message with its own memory: a damaged message, or a message whose duplicate may leave when the caller's memory
  // is gone.
  struct Copy : Completion {
    FaultyTransport* transport = nullptr;
    std::list<Copy>::iterator self;
    FaultyEndpoint* to = nullptr;
    std::uint64_t tag = 0;
    std::vector<std::byte> contents;
    Completion* callers = nullptr;  // nullptr once `done` of the caller has been called
    bool sends_again = false;
  };

  // Counts a post of this rank. True when the rank is dead, but has not shut down yet.
  bool IsDead();
  void Die(std::int64_t number);
  void Report(FaultKind kind, Rank to, std::int64_t number) const;
  // Whether messages with the tag of `send` to the same peer wait here: `send` must follow them. Raises `leaves_ns`,
  // the time when `send` is to leave, to the time when those messages have left.
  bool Follows(const FaultyEndpoint& to, const PostedSend& send, std::int64_t& leaves_ns) const;
  // Hands a message to the inner transport, and after it the messages that it was to overtake.
  void Leave(const Held& message);
  void Transmit(const Held& message);
  static void OnCopySent(Completion* completion, const absl::Status& status);
  // Hands over the messages that are due, before Progress or Drain of the inner transport; true when a completion may
  // have been called.
  bool MoveHeld();
  void ShutDown(const absl::Status& cause);

  const FaultPlan plan_;
  const bool renames_tags_;
  Rank rank_ = -1;
  std::deque<FaultyEndpoint> endpoints_;

  std::multimap<std::int64_t, Held> held_;  // messages by the time (of MonotonicNanos) when they leave
  std::list<Copy> copies_;
  EndedQueue ended_;        // to be called by the next Progress
  std::int64_t posts_ = 0;  // Sends and Recvs that this rank has posted, for kKill
  absl::Status death_;      // the error of a dead rank, which the next Progress shuts down
  std::size_t losses_seen_ = 0;
  bool shut_down_ = false;
};

}  // namespace tutti::faulty

#endif  // TUTTI_TRANSPORTS_FAULTY_TRANSPORT_H_
