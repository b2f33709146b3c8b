#include "transports/inproc/transport.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/told_by.h"
#include "transports/errors.h"

namespace tutti {
namespace inproc {

InprocTransport::~InprocTransport() { Shutdown(DestroyedWithoutShutdown(rank_)); }

absl::Status InprocTransport::Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time /*deadline*/,
                                      ConnectWatch /*watch*/) {
  const int size = static_cast<int>(addresses.size());
  if (size != hub_->size()) {
    return absl::InvalidArgumentError(absl::StrCat(size, " addresses for a hub of ", hub_->size(), " ranks"));
  }
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in a world of ", size));
  }
  rank_ = rank;  // known to Shutdown, too, when this call fails
  if (addresses[static_cast<std::size_t>(rank)] != address_) {
    return absl::InvalidArgumentError(absl::StrCat("addresses[", rank, "] is '",
                                                   absl::CHexEscape(addresses[static_cast<std::size_t>(rank)]),
                                                   "', must be '", address_, "', the address of rank ", rank));
  }
  std::vector<Port*> ports;
  for (Rank peer = 0; peer < size; ++peer) {
    const absl::StatusOr<Port*> port = hub_->Find(addresses[static_cast<std::size_t>(peer)]);
    if (!port.ok()) return absl::InvalidArgumentError(absl::StrCat("rank ", peer, ": ", port.status().message()));
    ports.push_back(*port);
  }
  for (Rank peer = 0; peer < size; ++peer) {
    endpoints_.emplace_back(this, peer, ports[static_cast<std::size_t>(peer)], hub_->share_node(rank, peer));
  }
  return absl::OkStatus();
}

void InprocTransport::PostSend(Rank peer, Port* port, std::uint64_t tag, const void* data, std::int64_t bytes,
                               Completion* completion) {
  if (shut_down_) return ended_.End(completion, cause_);
  if (!lost(peer).ok()) return ended_.End(completion, lost(peer));
  Message* message = port_->NewMessage();
  message->state = Message::State::kPosted;
  message->source = rank_;
  message->target = peer;
  message->tag = tag;
  message->data = data;
  message->bytes = bytes;
  message->completion = completion;
  if (port->Deliver(message)) return;
  port_->Free(message);
  HandleNews();  // a peer that aborts says so before it closes its port
  ended_.End(completion, lost(peer).ok() ? HasShutDown(peer) : lost(peer));
}

void InprocTransport::PostRecv(Rank peer, std::uint64_t tag, const PostedRecv& recv) {
  if (shut_down_) return ended_.End(recv.completion, cause_);
  if (!lost(peer).ok()) return ended_.End(recv.completion, lost(peer));
  const Key key(peer, tag);
  while (unexpected_.Oldest(key) != nullptr) {
    if (ReceiveUnexpected(key, recv)) return;
  }
  posted_.Add(key, recv);
}

void InprocTransport::RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  if (shut_down_) return ended_.End(completion, cause_);
  const PostedRecv recv = {data, bytes, completion};
  while (const std::optional<Key> first = MessageFor(tag)) {
    if (ReceiveUnexpected(*first, recv)) return;
  }
  posted_.Add(Key(kAnySource, tag), recv);
}

std::optional<InprocTransport::Key> InprocTransport::MessageFor(std::uint64_t tag) const {
  std::optional<Key> first;
  std::uint64_t number = 0;
  for (Rank source = 0; source < hub_->size(); ++source) {
    const auto* const message = unexpected_.Oldest(Key(source, tag));
    if (message == nullptr || (first.has_value() && message->number > number)) continue;
    first = Key(source, tag);
    number = message->number;
  }
  return first;
}

std::optional<InprocTransport::Key> InprocTransport::ReceiveFor(const Key& key) const {
  const Key any(kAnySource, key.second);
  const auto* const from_source = posted_.Oldest(key);
  const auto* const from_any = posted_.Oldest(any);
  if (from_source == nullptr && from_any == nullptr) return std::nullopt;
  if (from_source == nullptr) return any;
  return from_any == nullptr || from_source->number < from_any->number ? key : any;
}

void InprocTransport::Arrived(Message* message) {
  if (!lost(message->source).ok()) return Refuse(message, ToldBy(rank_, lost(message->source)));
  if (discarded_.Contains(GroupOf(message->tag))) return Refuse(message, absl::OkStatus());
  const Key key(message->source, message->tag);
  const std::optional<Key> recv = ReceiveFor(key);
  if (!recv.has_value()) return unexpected_.Add(key, message);
  if (message->Claim()) Receive(message, posted_.Take(*recv));
}

bool InprocTransport::ReceiveUnexpected(const Key& key, const PostedRecv& recv) {
  Message* const message = unexpected_.Take(key);
  if (!message->Claim()) return false;
  Receive(message, recv);
  return true;
}

void InprocTransport::Receive(Message* message, const PostedRecv& recv) {
  recv.completion->source = message->source;
  if (message->bytes == recv.bytes) {
    if (recv.bytes > 0) std::memcpy(recv.data, message->data, static_cast<std::size_t>(recv.bytes));
    ended_.End(recv.completion, absl::OkStatus());
  } else {
    ended_.End(recv.completion, WrongLength(message->source, message->bytes, recv.bytes));
  }
  message->sender->ReportEnd(message, absl::OkStatus());
}

void InprocTransport::Refuse(Message* message, const absl::Status& status) {
  if (message->Claim()) message->sender->ReportEnd(message, status);
}

void InprocTransport::HandleNews() {
  port_->Take(&news_);
  for (Event& event : news_) Handle(event);
  news_.clear();
}

void InprocTransport::Handle(Event& event) {
  Message* const message = event.message;
  switch (event.kind) {
    case Event::Kind::kArrived:
      return shut_down_ ? Refuse(message, refusal_) : Arrived(message);
    case Event::Kind::kEnded:
      ended_.End(message->completion, shut_down_ && !event.status.ok() ? cause_ : std::move(event.status));
      return port_->Free(message);
    case Event::Kind::kLeft:
      left_[static_cast<std::size_t>(event.peer)] = true;
      return;
    case Event::Kind::kAborted:
      return Lose(event.peer, event.status);
    case Event::Kind::kAsked:
      if (shut_down_ || endpoints_.empty()) return;  // a peer may ask before this rank has connected
      return port(event.peer)
          .Report({.kind = Event::Kind::kAnswered,
                   .peer = rank_,
                   .waits_for = waits_for_ != nullptr ? waits_for_->load(std::memory_order_relaxed) : -1});
    case Event::Kind::kAnswered:
      answers_[static_cast<std::size_t>(event.peer)] = event.waits_for;
      return;
    case Event::Kind::kNoted:
      if (lost(event.peer).ok()) notes_.Add({event.peer, event.group, std::move(event.status)});
      return;
  }
}

void InprocTransport::AskWaitsFor(Rank peer) {
  answers_[static_cast<std::size_t>(peer)].reset();
  port(peer).Report({.kind = Event::Kind::kAsked, .peer = rank_});
}

bool InprocTransport::Progress() {
  HandleNews();
  return ended_.CallAll();
}

void InprocTransport::Sleep(absl::Time until) {
  if (ended_.empty() && losses_seen_ == losses_.size()) port_->Sleep(until);
}

absl::Span<const Loss> InprocTransport::Check() {
  HandleNews();
  losses_seen_ = losses_.size();
  return losses_;
}

void InprocTransport::Lose(Rank peer, const absl::Status& cause) {
  if (shut_down_ || !lost(peer).ok()) return;
  losses_.push_back({peer, cause});
  lost_[static_cast<std::size_t>(peer)] = cause;
  posted_.TakeIf([&](const Key& key, const PostedRecv& recv) {
    if (key.first == peer) ended_.End(recv.completion, cause);
    return key.first == peer;
  });
  unexpected_.TakeIf([&](const Key& key, Message* message) {
    if (key.first == peer) Refuse(message, ToldBy(rank_, cause));
    return key.first == peer;
  });
  for (Message& message : port_->messages()) {
    if (message.target == peer && message.Withdraw()) ended_.End(message.completion, cause);
  }
}

void InprocTransport::Discard(std::uint32_t group) {
  if (shut_down_ || !discarded_.Add(group)) return;
  posted_.TakeIf([&](const Key& key, const PostedRecv& recv) {
    const auto& [source, tag] = key;
    if (GroupOf(tag) == group) ended_.End(recv.completion, HasBeenDiscarded(source, group));
    return GroupOf(tag) == group;
  });
  ThrowAway(group);
}

void InprocTransport::Accept(std::uint32_t group) {
  HandleNews();
  discarded_.Remove(group);
  ThrowAway(group);
}

void InprocTransport::ThrowAway(std::uint32_t group) {
  unexpected_.TakeIf([&](const Key& key, Message* message) {
    if (GroupOf(key.second) == group) Refuse(message, absl::OkStatus());
    return GroupOf(key.second) == group;
  });
}

void InprocTransport::Tell(Rank peer, std::uint32_t group, const absl::Status& cause) {
  if (shut_down_ || !lost(peer).ok()) return;
  port(peer).Report({.kind = Event::Kind::kNoted, .status = cause, .peer = rank_, .group = group});
}

bool InprocTransport::HasLeft(Rank peer) {
  HandleNews();
  return left_[static_cast<std::size_t>(peer)];
}

absl::Status InprocTransport::Seclude(std::byte* /*data*/, std::int64_t /*bytes*/) {
  return absl::UnimplementedError("ranks that are threads of one process cannot keep their memory from each other");
}

void InprocTransport::TellPeers(const Event& event) {
  if (rank_ >= 0) hub_->ReportToOthers(port_, event);
}

void InprocTransport::WithdrawSends() {
  std::size_t claimed = 0;
  for (Message& message : port_->messages()) {
    if (message.state == Message::State::kFree || message.state == Message::State::kWithdrawn) continue;
    if (message.Withdraw()) {
      ended_.End(message.completion, cause_);
    } else {
      ++claimed;  // a peer is copying or refusing the message, and will report its end
    }
  }
  // Each claimed message takes as long as one copy, which nothing can interrupt: the copying thread belongs to this
  // process.
  while (claimed > 0) {
    port_->AwaitNews();
    const std::size_t before = ended_.size();
    HandleNews();
    claimed -= ended_.size() - before;
  }
}

void InprocTransport::Shutdown(const absl::Status& cause) {
  if (shut_down_) return;
  if (!maker_.is_this()) {
    // The hub is kept for good in a forked child, where the other ranks' threads do not exist and nobody unlocks the
    // locks that they held: destroying it would wait for ever.
    static auto* const kept = new std::vector<std::shared_ptr<InprocHub>>;
    kept->push_back(hub_);
    shut_down_ = true;
    return;
  }
  HandleNews();
  shut_down_ = true;
  cause_ = cause.ok() ? HasShutDown(rank_) : cause;
  refusal_ = cause.ok() ? cause_ : ToldBy(rank_, cause);
  // Peers that have connected wait for this rank, whether or not its own Connect has succeeded.
  if (!cause.ok()) TellPeers({.kind = Event::Kind::kAborted, .status = refusal_, .peer = rank_});
  port_->Close();
  posted_.TakeIf([&](const Key& /*key*/, const PostedRecv& recv) {
    ended_.End(recv.completion, cause_);
    return true;
  });
  unexpected_.TakeIf([&](const Key& /*key*/, Message* message) {
    Refuse(message, refusal_);
    return true;
  });
  HandleNews();
  WithdrawSends();
  // The goodbye follows all that was sent: messages that are not received by now have been withdrawn.
  if (cause.ok()) TellPeers({.kind = Event::Kind::kLeft, .peer = rank_});
  Progress();
}

}  // namespace inproc

absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocHub> hub,
                                                               const TransportOptions& options) {
  if (hub == nullptr) {
    return absl::InvalidArgumentError("MakeInprocTransport: hub is null; expected that of all ranks (MakeInprocHub)");
  }
  absl::StatusOr<Mapping> region = MapPrivateRegion(options.region_bytes);
  if (!region.ok()) return region.status();
  absl::StatusOr<InprocHub::Registration> registration = hub->Register(*std::move(region));
  if (!registration.ok()) return registration.status();
  return std::make_unique<inproc::InprocTransport>(std::move(hub), *std::move(registration));
}

}  // namespace tutti
