// Sends and receives of the UCX transport. Callbacks of UCX run inside its progress and only queue what has ended.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "transports/errors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {
namespace {

constexpr ucp_tag_t kExactly = ~ucp_tag_t{0};
constexpr ucp_tag_t kAlsoAnnounced = ~kAnnounces;

constexpr ucp_tag_t kAnyControl = TagOf(kControlSource, 0);

ucp_request_param_t HostMemory(void* user_data) {
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.user_data = user_data;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

}  // namespace

UcxTransport::Operation* UcxTransport::NewOperation(Completion* completion, Rank peer, std::uint64_t tag,
                                                    std::int64_t bytes, bool receives) {
  if (free_operations_.empty()) {
    free_operations_.push_back(&operations_.emplace_back());
    free_operations_.back()->number = static_cast<std::uint32_t>(operations_.size() - 1);
  }
  Operation* operation = free_operations_.back();
  free_operations_.pop_back();
  *operation = {.transport = this,
                .completion = completion,
                .peer = peer,
                .tag = tag,
                .bytes = bytes,
                .receives = receives,
                .number = operation->number};
  return operation;
}

void UcxTransport::Finish(Operation& operation, absl::Status status) {
  ended_.End(operation.completion, std::move(status));
  Release(&operation);
}

void UcxTransport::Release(Operation* operation) {
  if (operation->completion == nullptr) --orphans_;
  if (operation->wired) --wired_operations_;
  operation->completion = nullptr;
  operation->request = nullptr;
  free_operations_.push_back(operation);
}

void UcxTransport::PostSend(UcxEndpoint& to, std::uint64_t tag, const void* data, std::int64_t bytes,
                            Completion* completion) {
  if (shut_down_) return ended_.End(completion, cause_);
  if (health_.lost(to.peer()) || HasLeftNode(to.peer())) return ended_.End(completion, VerdictOn(to.peer()));
  ShortWire* const wire = wires_.ShortTo(to.peer());
  if (wire != nullptr) return PostWiredSend(*wire, to.peer(), tag, data, bytes, completion);
  Operation* operation = NewOperation(completion, to.peer(), tag, bytes, false);
  ucp_request_param_t param = HostMemory(operation);
  param.cb.send = OnSent;
  may_match_ |= to.peer() == rank_;  // some versions of UCX deliver a message of this rank to itself at once
  ucp_tag_t ucp_tag = TagOf(rank_, tag);
  if (const std::optional<Payload> payload = PayloadReadBy(to, data, bytes); payload.has_value()) {
    operation->announced = true;
    operation->announcement = {.payload = *payload, .bytes = bytes, .number = operation->number};
    data = &operation->announcement;
    bytes = sizeof(Announcement);
    ucp_tag |= kAnnounces;
  }
  const ucs_status_ptr_t request = ucp_.ucp_tag_send_nbx(to.ep, data, static_cast<std::size_t>(bytes), ucp_tag, &param);
  if (UCS_PTR_IS_PTR(request)) {
    operation->request = request;
  } else {
    SendEnded(operation, UCS_PTR_STATUS(request));
  }
}

// Calls `post`, which posts a receive, and returns its request; or nullptr when the receive ended at once, as `ended`
// tells. UCX 1.13 gives the length of a message that was there already only to a callback, so the receive always has a
// callback; a callback that runs before its request is known leaves the request to its caller.
void* UcxTransport::PostTagged(absl::FunctionRef<ucs_status_ptr_t(const ucp_request_param_t&)> post,
                               ucp_tag_recv_nbx_callback_t callback, void* user_data, EndedInline* ended) {
  ucp_request_param_t param = HostMemory(user_data);
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = callback;
  posting_ = ended;
  const ucs_status_ptr_t request = post(param);
  posting_ = nullptr;
  if (UCS_PTR_IS_PTR(request) && !ended->ended) return request;
  if (UCS_PTR_IS_PTR(request)) {
    ucp_.ucp_request_free(request);
  } else {
    *ended = {true, UCS_PTR_STATUS(request), 0, 0};
  }
  return nullptr;
}

void UcxTransport::PostRecv(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  if (shut_down_) return ended_.End(completion, cause_);
  if (health_.lost(from)) return ended_.End(completion, health_.cause(from));
  if (queued_.Oldest(tag) != nullptr) return queued_.Add(tag, {from, data, bytes, completion});
  PostRecvNow(from, tag, data, bytes, completion);
}

void UcxTransport::PostRecvNow(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  if (wires_.To(from) != nullptr) return PostWiredRecv(from, tag, data, bytes, completion);
  Operation* operation = NewOperation(completion, from, tag, bytes, true);
  operation->data = data;
  const bool may_announce = endpoints_[static_cast<std::size_t>(from)].region().base != nullptr;
  Receive(operation, [&](void* buffer, std::size_t length, const ucp_request_param_t& param) {
    return ucp_.ucp_tag_recv_nbx(worker_->get(), buffer, length, TagOf(from, tag),
                                 may_announce ? kAlsoAnnounced : kExactly, &param);
  });
}

void UcxTransport::Receive(Operation* operation,
                           absl::FunctionRef<ucs_status_ptr_t(void*, std::size_t, const ucp_request_param_t&)> post) {
  const auto bytes = static_cast<std::size_t>(operation->bytes);
  const bool is_short = bytes < sizeof(Announcement);
  void* const buffer = is_short ? &operation->announcement : operation->data;
  EndedInline ended;
  operation->request = PostTagged(
      [&](const ucp_request_param_t& param) { return post(buffer, std::max(bytes, sizeof(Announcement)), param); },
      OnReceived, operation, &ended);
  if (ended.ended) RecvEnded(operation, ended);
}

void UcxTransport::OnSent(void* request, ucs_status_t status, void* operation) {
  auto* sent = static_cast<Operation*>(operation);
  UcxTransport* self = sent->transport;
  self->SendEnded(sent, status);
  self->ucp_.ucp_request_free(request);
}

void UcxTransport::OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* operation) {
  auto* received = static_cast<Operation*>(operation);
  UcxTransport* self = received->transport;
  if (self->posting_ != nullptr) {
    *self->posting_ = {true, status, info->length, info->sender_tag};
    return;
  }
  self->RecvEnded(received, {true, status, info->length, info->sender_tag});
  self->ucp_.ucp_request_free(request);
}

void UcxTransport::SendEnded(Operation* operation, ucs_status_t status) {
  Completion* completion = operation->completion;
  if (completion == nullptr) return Release(operation);  // the completion has ended: see EndBeforeUcx
  const Rank peer = operation->peer;
  operation->request = nullptr;
  operation->sent = true;
  if (operation->announced && !operation->taken) {
    const bool lost = health_.lost(peer);
    if (lost ? !HasHeardOfLoss(peer) : status == UCS_OK) return;
  }
  const bool was_read = operation->announced;
  Release(operation);
  if (was_read && health_.lost(peer)) return ended_.End(completion, health_.cause(peer));
  if (status == UCS_OK) return ended_.End(completion, absl::OkStatus());
  Failed(completion, peer, status, was_read);
}

void UcxTransport::RecvEnded(Operation* operation, const EndedInline& how) {
  const auto [is_ended, status, received, tag] = how;
  const bool arrived = status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED;
  if (arrived && (tag & kAnnounces) != 0 && operation->completion != nullptr) return BeginRead(operation, received);
  const Operation ended = *operation;
  Release(operation);
  if (ended.completion == nullptr) return;
  if (ended.discarded && (arrived || status == UCS_ERR_CANCELED)) {
    return ended_.End(ended.completion, HasBeenDiscarded(ended.peer, GroupOf(ended.tag)));
  }
  const bool whole = received == static_cast<std::size_t>(ended.bytes);
  if (status == UCS_OK && whole) {
    if (received < sizeof(Announcement) && received > 0) std::memcpy(ended.data, &ended.announcement, received);
    return ended_.End(ended.completion, absl::OkStatus());
  }
  if (arrived) {
    return ended_.End(ended.completion, WrongLength(ended.peer, static_cast<std::int64_t>(received), ended.bytes));
  }
  Failed(ended.completion, ended.peer, status, /*announced=*/false);
}

absl::Status UcxTransport::VerdictOn(Rank peer) const {
  if (shut_down_) return cause_;
  if (health_.lost(peer)) return health_.cause(peer);
  return health_.said_goodbye(peer) ? HasShutDown(peer) : absl::OkStatus();
}

bool UcxTransport::HasHeardOfLoss(Rank peer) const {
  return shut_down_ || endpoints_[static_cast<std::size_t>(peer)].ep == nullptr;
}

void UcxTransport::Failed(Completion* completion, Rank peer, ucs_status_t status, bool announced) {
  if (absl::Status verdict = VerdictOn(peer); !verdict.ok()) return ended_.End(completion, std::move(verdict));
  health_.SuspectDeath(peer, ucp_.ucs_status_string(status), NanosIn(kAfterError));
  held_.push_back({completion, peer, announced});
}

void UcxTransport::EndHeld() {
  if (held_.empty()) return;
  health_.Conclude(MonotonicNanos());
  std::erase_if(held_, [&](const Held& held) {
    absl::Status verdict = VerdictOn(held.peer);
    const bool too_early = held.announced && health_.lost(held.peer) && !HasHeardOfLoss(held.peer);
    const bool known = !verdict.ok() && !too_early;
    if (known) ended_.End(held.completion, std::move(verdict));
    return known;
  });
}

bool UcxTransport::CallEnded() {
  FreeLeft();
  EndHeld();
  return ended_.CallAll();
}

void UcxTransport::ReceiveControl() {
  while (control_left_-- > 0) {
    EndedInline ended;
    control_receive_ = PostTagged(
        [&](const ucp_request_param_t& param) {
          return ucp_.ucp_tag_recv_nbx(worker_->get(), control_in_.data(), control_in_.size(), kAnyControl, kAnyControl,
                                       &param);
        },
        OnControl, this, &ended);
    if (!ended.ended) return;
    if (ended.status == UCS_OK) HandleFrame(ended.bytes);
  }
}

void UcxTransport::HandleFrame(std::size_t bytes) {
  const std::optional<Control> control = Decode(control_in_.data(), bytes);
  if (!control.has_value() || control->from >= static_cast<Rank>(endpoints_.size())) return;
  if (control->kind >= Control::Kind::kAsks) ++control_left_;
  Handle(control->from, *control);
  Answer(control->from, *control);
}

void UcxTransport::Answer(Rank from, const Control& control) {
  const Control::Kind kind = control.kind;
  Control answer;
  answer.from = rank_;
  if (kind == Control::Kind::kGoodbye) {
    PeerNews& news = news_[static_cast<std::size_t>(from)];
    news.goodbye = true;
    news.wired = control.message;
    if (Wire* const wire = wires_.To(from); wire != nullptr) wire->HearGoodbye();
    answer.kind = Control::Kind::kGoodbyeSeen;
  } else if (kind == Control::Kind::kAsks && !shut_down_) {
    answer.kind = Control::Kind::kAnswers;
    if (waits_for_ != nullptr) answer.waits_for = waits_for_->load(std::memory_order_relaxed);
  } else {
    return;
  }
  SendControl(endpoints_[static_cast<std::size_t>(from)], answer);
}

void UcxTransport::OnControl(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* transport) {
  auto* self = static_cast<UcxTransport*>(transport);
  if (self->posting_ != nullptr) {
    *self->posting_ = {true, status, info->length, info->sender_tag};
    return;
  }
  self->control_receive_ = nullptr;
  if (status == UCS_OK) self->HandleFrame(info->length);
  self->ucp_.ucp_request_free(request);
  if (status != UCS_ERR_CANCELED && self->worker_ != nullptr) self->ReceiveControl();
}

// A control message to another node follows what was sent there before it.
void UcxTransport::SendControl(UcxEndpoint& to, const Control& control, Operation* receive, absl::Status result) {
  if (ShortWire* const wire = wires_.ShortTo(to.peer()); wire != nullptr) return wire->Tell(control);
  if (free_controls_.empty()) free_controls_.push_back(&controls_.emplace_back());
  ControlSend* const send = free_controls_.back();
  free_controls_.pop_back();
  *send = {this, Encode(control), receive, std::move(result)};
  if (to.ep == nullptr) return EndControl(*send);
  ucp_request_param_t param = HostMemory(send);
  param.cb.send = OnControlSent;
  // A greeting ends only when its peer has taken it in: see GreetAll.
  const auto post = control.kind == Control::Kind::kHello ? ucp_.ucp_tag_send_sync_nbx : ucp_.ucp_tag_send_nbx;
  const ucs_status_ptr_t request = post(to.ep, send->frame.data(), send->frame.size(), kAnyControl, &param);
  if (!UCS_PTR_IS_PTR(request)) return EndControl(*send);
  ++control_sends_;
}

// A receive ends also where the message could not be sent: its sender is then lost, and waits for nothing.
void UcxTransport::EndControl(ControlSend& send) {
  free_controls_.push_back(&send);
  if (send.receive == nullptr) return;
  ended_.End(send.receive->completion, std::move(send.result));
  Release(send.receive);
}

void UcxTransport::OnControlSent(void* request, ucs_status_t /*status*/, void* send) {
  auto& sent = *static_cast<ControlSend*>(send);
  --sent.transport->control_sends_;
  sent.transport->EndControl(sent);
  sent.transport->ucp_.ucp_request_free(request);
}

void UcxTransport::OnEndpointError(void* endpoint, ucp_ep_h /*ep*/, ucs_status_t status) {
  auto* failed = static_cast<UcxEndpoint*>(endpoint);
  UcxTransport* self = failed->transport();
  self->health_.SuspectDeath(failed->peer(), self->ucp_.ucs_status_string(status), NanosIn(kAfterError));
}

}  // namespace tutti::ucx
