// The reference transport: ranks are threads of one process. The receiver copies each message once, straight from the
// sender's memory. Matching happens on the receiver's thread alone, so that only ports (hub.h) need locks.
#ifndef TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_
#define TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "transports/inproc/endpoint.h"
#include "transports/inproc/hub.h"
#include "tutti/transport.h"

namespace tutti::inproc {

struct PostedRecv {
  void* data;
  std::int64_t bytes;
  Completion* completion;
};

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<InprocHub> hub, InprocHub::Registration registration)
      : hub_(std::move(hub)), port_(registration.port), address_(std::move(registration.address)) {
    posted_.reserve(kRoom);
    unexpected_.reserve(kRoom);
    news_.reserve(kRoom);
    ended_.reserve(kRoom);
    calling_.reserve(kRoom);
  }
  ~InprocTransport() override;

  absl::string_view name() const override { return "inproc"; }
  MappedRegion region() const override { return {port_->region().base(), port_->region().bytes()}; }
  absl::StatusOr<std::string> Address() override { return address_; }
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline) override;
  Endpoint& endpoint(Rank peer) override { return endpoints_[static_cast<std::size_t>(peer)]; }
  bool Progress() override;
  void Sleep(absl::Time until) override;
  void Wake() override { port_->Wake(); }
  absl::Status Check() override { return port_->told(); }
  void Shutdown(const absl::Status& cause) override;

  // For endpoints.
  void PostSend(Rank peer, Port* port, std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion);
  void PostRecv(Rank peer, std::uint64_t tag, const PostedRecv& recv);

 private:
  using Key = std::pair<Rank, std::uint64_t>;  // source, tag

  void Arrived(Message* message);
  void Receive(Message* message, const PostedRecv& recv);
  // Ends a message that this rank will not receive.
  static void Refuse(Message* message, const absl::Status& status);
  void HandleNews();
  void WithdrawSends();
  void End(Completion* completion, absl::Status status) { ended_.emplace_back(completion, std::move(status)); }

  const std::shared_ptr<InprocHub> hub_;
  Port* const port_;
  const std::string address_;
  Rank rank_ = -1;
  std::deque<InprocEndpoint> endpoints_;

  absl::flat_hash_map<Key, PostedRecv> posted_;
  absl::flat_hash_map<Key, Message*> unexpected_;
  std::vector<Event> news_;
  std::vector<std::pair<Completion*, absl::Status>> ended_;  // to be called by the next Progress
  std::vector<std::pair<Completion*, absl::Status>>
      calling_;  // being called; swapped with `ended_`, so nothing allocates
  bool shut_down_ = false;
  absl::Status cause_;    // how unfinished operations of this rank end after Shutdown
  absl::Status refusal_;  // how sends of peers to it end
};

}  // namespace tutti::inproc

#endif  // TUTTI_TRANSPORTS_INPROC_TRANSPORT_H_
