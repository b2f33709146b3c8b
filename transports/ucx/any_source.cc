// Receives from any source of the UCX transport. UCX would take such a receive with a mask for the tag, but tells whose
// message the receive takes only at the end: a receive whose sender dies in the middle could then neither be ended nor
// be blamed on anybody (losses.cc). So a receive from any source waits here until UCX, or the wires, have a message of
// the tag that no other receive takes, and is posted for that message, whose sender is known. Receives of that tag that
// are posted meanwhile wait behind the first.
#include <utility>

#include "transports/errors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {

void UcxTransport::RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  if (shut_down_) return ended_.End(completion, cause_);
  queued_.Add(tag, {kAnySource, data, bytes, completion});
  may_match_ = true;
}

bool UcxTransport::MatchQueued() {
  if (!std::exchange(may_match_, false) || queued_.empty() || worker_ == nullptr) return false;
  bool matched = false;
  queued_.TakeWhile([&](std::uint64_t tag, const QueuedRecv& recv) {
    if (recv.source == kAnySource && !ReceiveNext(tag, recv)) return false;
    if (recv.source != kAnySource) PostRecvNow(recv.source, tag, recv.data, recv.bytes, recv.completion);
    return matched = true;
  });
  return matched;
}

// UCX and the wires take turns at being the first, so that neither keeps the messages of the other waiting.
bool UcxTransport::ReceiveNext(std::uint64_t tag, const QueuedRecv& recv) {
  wires_first_ = !wires_first_;
  if (wires_first_ && ReceiveNextFromWires(tag, recv)) return true;
  return ReceiveNextFromUcx(tag, recv) || (!wires_first_ && ReceiveNextFromWires(tag, recv));
}

bool UcxTransport::ReceiveNextFromWires(std::uint64_t tag, const QueuedRecv& recv) {
  Rank source = kAnySource;
  std::uint64_t oldest = 0;
  wires_.ForEach([&](Rank peer, Wire& /*wire*/, ShortWire& /*short_wire*/) {
    const auto* const arrived = arrived_.Oldest(TagOf(peer, tag));
    if (arrived == nullptr || health_.lost(peer) || (source != kAnySource && arrived->number > oldest)) return;
    source = peer;
    oldest = arrived->number;
  });
  if (source == kAnySource) return false;
  recv.completion->source = source;
  PostWiredRecv(source, tag, recv.data, recv.bytes, recv.completion);
  return true;
}

bool UcxTransport::ReceiveNextFromUcx(std::uint64_t tag, const QueuedRecv& recv) {
  ucp_tag_recv_info_t info;
  ucp_tag_message_h message = nullptr;
  Rank source = kAnySource;
  for (;;) {  // ends with the last message that has come: none comes meanwhile
    message = ucp_.ucp_tag_probe_nb(worker_->get(), tag, kTagMask, /*remove=*/1, &info);
    if (message == nullptr) return false;
    source = SourceOf(info.sender_tag);
    if (IsRank(source) && !health_.lost(source)) break;
    ThrowAway(message, info);
  }
  recv.completion->source = source;
  Operation* operation = NewOperation(recv.completion, source, tag, recv.bytes, true);
  operation->data = recv.data;
  Receive(operation, [&](void* buffer, std::size_t length, const ucp_request_param_t& param) {
    return ucp_.ucp_tag_msg_recv_nbx(worker_->get(), buffer, length, message, &param);
  });
  return true;
}

}  // namespace tutti::ucx
