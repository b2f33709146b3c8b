#include "transports/inproc/transport.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "transports/inproc/status.h"

namespace tutti {
namespace inproc {

InprocTransport::~InprocTransport() {
  Shutdown(absl::UnavailableError(absl::StrCat("rank ", rank_, " destroyed its transport without a Shutdown")));
}

absl::Status InprocTransport::Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time /*deadline*/) {
  const int size = static_cast<int>(addresses.size());
  if (size != hub_->size()) {
    return absl::InvalidArgumentError(absl::StrCat(size, " addresses for a hub of ", hub_->size(), " ranks"));
  }
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in a world of ", size));
  }
  if (addresses[static_cast<std::size_t>(rank)] != address_) {
    return absl::InvalidArgumentError(absl::StrCat("addresses[", rank, "] is not this rank's own address"));
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
  rank_ = rank;
  return absl::OkStatus();
}

void InprocTransport::PostSend(Rank peer, Port* port, std::uint64_t tag, const void* data, std::int64_t bytes,
                               Completion* completion) {
  if (shut_down_) return End(completion, cause_);
  Message* message = port_->NewMessage();
  message->state = Message::State::kPosted;
  message->source = rank_;
  message->tag = tag;
  message->data = data;
  message->bytes = bytes;
  message->completion = completion;
  if (port->Deliver(message)) return;
  port_->Free(message);
  const absl::Status told = port_->told();
  End(completion, told.ok() ? HasShutDown(peer) : told);
}

void InprocTransport::PostRecv(Rank peer, std::uint64_t tag, const PostedRecv& recv) {
  if (shut_down_) return End(recv.completion, cause_);
  if (const auto found = unexpected_.find(Key(peer, tag)); found != unexpected_.end()) {
    Message* message = found->second;
    unexpected_.erase(found);
    if (message->Claim()) return Receive(message, recv);
  }
  if (!posted_.try_emplace(Key(peer, tag), recv).second) End(recv.completion, TagInUse("Recv from", peer, tag));
}

void InprocTransport::Arrived(Message* message) {
  const Key key(message->source, message->tag);
  if (const auto found = posted_.find(key); found != posted_.end()) {
    if (!message->Claim()) return;
    const PostedRecv recv = found->second;
    posted_.erase(found);
    return Receive(message, recv);
  }
  if (!unexpected_.try_emplace(key, message).second) {
    Refuse(message, TagInUse("Send to", rank_, message->tag));
  }
}

void InprocTransport::Receive(Message* message, const PostedRecv& recv) {
  if (message->bytes == recv.bytes) {
    if (recv.bytes > 0) std::memcpy(recv.data, message->data, static_cast<std::size_t>(recv.bytes));
    End(recv.completion, absl::OkStatus());
  } else {
    End(recv.completion, WrongLength(message->source, message->tag, message->bytes, recv.bytes));
  }
  message->sender->ReportEnd(message, absl::OkStatus());
}

void InprocTransport::Refuse(Message* message, const absl::Status& status) {
  if (message->Claim()) message->sender->ReportEnd(message, status);
}

void InprocTransport::HandleNews() {
  port_->Take(&news_);
  for (Event& event : news_) {
    Message* message = event.message;
    if (event.kind == Event::Kind::kEnded) {
      End(message->completion, shut_down_ && !event.ended.ok() ? cause_ : std::move(event.ended));
      port_->Free(message);
    } else if (shut_down_) {
      Refuse(message, refusal_);
    } else {
      Arrived(message);
    }
  }
  news_.clear();
}

bool InprocTransport::Progress() {
  HandleNews();
  if (ended_.empty()) return false;
  // Completions may post, which fills `ended_` anew: that is for the next call.
  calling_.swap(ended_);
  for (auto& [completion, status] : calling_) completion->done(completion, status);
  calling_.clear();
  return true;
}

void InprocTransport::Sleep(absl::Time until) {
  if (ended_.empty()) port_->Sleep(until);
}

void InprocTransport::WithdrawSends() {
  int claimed = 0;
  for (Message& message : port_->messages()) {
    if (message.state == Message::State::kFree) continue;
    if (message.Withdraw()) {
      End(message.completion, cause_);
    } else {
      ++claimed;  // a peer is copying it, or refuses it: its end is on the way
    }
  }
  while (claimed > 0) {
    port_->AwaitNews();
    const std::size_t before = ended_.size();
    HandleNews();
    claimed -= static_cast<int>(ended_.size() - before);
  }
}

void InprocTransport::Shutdown(const absl::Status& cause) {
  if (shut_down_) return;
  HandleNews();
  shut_down_ = true;
  cause_ = cause.ok() ? HasShutDown(rank_) : cause;
  refusal_ = cause.ok() ? cause_ : ToldBy(rank_, cause);
  if (!cause.ok()) {
    port_->Tell(cause);  // first, so that this rank keeps its own words
    for (const InprocEndpoint& endpoint : endpoints_) endpoint.port()->Tell(refusal_);
  }
  port_->Close();
  for (const auto& [key, recv] : posted_) End(recv.completion, cause_);
  posted_.clear();
  for (const auto& [key, message] : unexpected_) Refuse(message, refusal_);
  unexpected_.clear();
  HandleNews();
  WithdrawSends();
  while (Progress()) {
  }
}

}  // namespace inproc

absl::StatusOr<std::unique_ptr<Transport>> MakeInprocTransport(std::shared_ptr<InprocHub> hub,
                                                               const TransportOptions& options) {
  absl::StatusOr<Mapping> region = MapPrivateRegion(options.region_bytes);
  if (!region.ok()) return region.status();
  absl::StatusOr<InprocHub::Registration> registration = hub->Register(*std::move(region));
  if (!registration.ok()) return registration.status();
  return std::make_unique<inproc::InprocTransport>(std::move(hub), *std::move(registration));
}

}  // namespace tutti
