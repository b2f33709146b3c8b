// The reference transport: ranks are threads of one process. The receiver copies each message once, straight from the
// sender's memory. Matching happens on the receiver's thread alone, so that only ports (hub.h) need locks.
#ifndef TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_
#define TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/fork.h"
#include "transports/discarded.h"
#include "transports/ended.h"
#include "transports/inproc/endpoint.h"
#include "transports/inproc/hub.h"
#include "transports/keyed_queues.h"
#include "transports/notes.h"
#include "tutti/transport.h"

namespace tutti::inproc {

struct PostedRecv {
  void* data = nullptr;
  std::int64_t bytes = 0;
  Completion* completion = nullptr;
};

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocHub> hub, InprocHub::Registration registration)
      : hub_(std::move(hub)),
        port_(registration.port),
        address_(std::move(registration.address)),
        lost_(static_cast<std::size_t>(hub_->size())),
        left_(static_cast<std::size_t>(hub_->size())),
        answers_(static_cast<std::size_t>(hub_->size())) {
    news_.reserve(kRoom);
  }
  ~InprocTransport() override;

  absl::string_view name() const override { return "inproc"; }
  MappedRegion region() const override { return {port_->region().base(), port_->region().bytes()}; }
  absl::StatusOr<std::string> Address() override { return address_; }
  using Transport::Connect;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override;
  Endpoint& endpoint(Rank peer) override { return endpoints_[static_cast<std::size_t>(peer)]; }
  void RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  bool Progress() override;
  bool CallEnded() override { return ended_.CallAll(); }
  void Sleep(absl::Time until) override;
  void Wake() override { port_->Wake(); }
  absl::Span<const Loss> Check() override;
  void Disconnect(Rank peer, const absl::Status& cause) override { Lose(peer, cause); }
  void Discard(std::uint32_t group) override;
  void Accept(std::uint32_t group) override;
  void Tell(Rank peer, std::uint32_t group, const absl::Status& cause) override;
  std::optional<Note> TakeNote() override { return notes_.Take(); }
  bool HasLeft(Rank peer) override;
  void ShowWaitsFor(const std::atomic<Rank>* waits_for) override { waits_for_ = waits_for; }
  void AskWaitsFor(Rank peer) override;
  std::optional<Rank> WaitsFor(Rank peer) override { return answers_[static_cast<std::size_t>(peer)]; }
  bool HasEnded(Rank /*peer*/) override { return false; }
  absl::Status Seclude(std::byte* data, std::int64_t bytes) override;
  void Shutdown(const absl::Status& cause) override;

  // The functions that endpoints call.
  void PostSend(Rank peer, Port* port, std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion);
  void PostRecv(Rank peer, std::uint64_t tag, const PostedRecv& recv);

 private:
  using Key = std::pair<Rank, std::uint64_t>;  // the source (of a receive perhaps kAnySource) and the tag

  void Arrived(Message* message);
  // Ends the messages of `group` that have come and that nobody has received.
  void ThrowAway(std::uint32_t group);
  // The key of the receive that takes a message of `key`: of all that match, the receive posted first; nullopt: there
  // is none.
  std::optional<Key> ReceiveFor(const Key& key) const;
  // The key of the message with `tag` that came first, from any rank; nullopt: there is none.
  std::optional<Key> MessageFor(std::uint64_t tag) const;
  // Receives the oldest message of `key`; false when its sender has withdrawn it.
  bool ReceiveUnexpected(const Key& key, const PostedRecv& recv);
  void Receive(Message* message, const PostedRecv& recv);
  // Ends a message that this rank will not receive.
  static void Refuse(Message* message, const absl::Status& status);
  void HandleNews();
  void Handle(Event& event);
  Port& port(Rank peer) { return *endpoints_[static_cast<std::size_t>(peer)].port(); }
  // The cause with which a peer was lost; OK for a peer that is not lost.
  const absl::Status& lost(Rank peer) const { return lost_[static_cast<std::size_t>(peer)]; }
  void Lose(Rank peer, const absl::Status& cause);
  // Reports `event` to all other ranks; to none when this rank does not know which one it is.
  void TellPeers(const Event& event);
  void WithdrawSends();

  const std::shared_ptr<InprocHub> hub_;
  Port* const port_;
  const std::string address_;
  Rank rank_ = -1;  // until Connect is called
  std::deque<InprocEndpoint> endpoints_;

  KeyedQueues<Key, PostedRecv> posted_{kRoom};
  KeyedQueues<Key, Message*> unexpected_{kRoom};
  std::vector<Event> news_;
  EndedQueue ended_{kRoom};  // to be called by the next Progress
  const MakerProcess maker_;
  std::vector<Loss> losses_;
  std::size_t losses_seen_ = 0;     // how many losses Check has returned
  std::vector<absl::Status> lost_;  // by peer: the cause of its loss
  DiscardedGroups discarded_;
  Notes notes_;
  std::vector<bool> left_;                    // by peer: whether the peer has said goodbye
  std::vector<std::optional<Rank>> answers_;  // by peer: its answer to the last question
  const std::atomic<Rank>* waits_for_ = nullptr;
  bool shut_down_ = false;
  absl::Status cause_;    // the error of this rank's operations that are unfinished at Shutdown, or posted after it
  absl::Status refusal_;  // the error of sends of peers to this rank
};

}  // namespace tutti::inproc

#endif  // TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_
