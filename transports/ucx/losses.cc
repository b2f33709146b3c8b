// What the UCX transport does about peers that it has lost. Endpoints are closed here, where no callback of UCX runs.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "transports/errors.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {

absl::Span<const Loss> UcxTransport::Check() {
  if (worker_ != nullptr && !shut_down_) {
    ReadLinks();
    health_.Conclude(MonotonicNanos());
    CutLost();
    EndSendsToLeavers();
    ThrowAwayUnwanted();
    EndHeld();
  }
  losses_seen_ = health_.losses().size();
  return health_.losses();
}

void UcxTransport::Disconnect(Rank peer, const absl::Status& cause) {
  if (worker_ == nullptr || shut_down_) return;
  health_.Lose(peer, cause);
  CutLost();
}

void UcxTransport::CutLost() {
  if (!greeted_) return;  // Connect fails, and Shutdown closes what UCX is still setting up
  if (losses_cut_ < health_.losses().size()) TakeEndedOnWires();
  for (; losses_cut_ < health_.losses().size(); ++losses_cut_) {
    const auto& [peer, cause] = health_.losses()[losses_cut_];
    // A peer that lives all the same hears of this before the sends to it end: see announced.cc.
    Control abort;
    abort.kind = Control::Kind::kAbort;
    abort.from = rank_;
    abort.cause = cause;
    links_.Tell(abort, peer);
    CloseByForce(endpoints_[static_cast<std::size_t>(peer)]);
    EndUnansweredSends(peer);
    for (Operation& operation : operations_) {
      const bool receives = operation.completion != nullptr && operation.receives && operation.request != nullptr;
      if (!receives || operation.peer != peer) continue;
      ucp_.ucp_request_cancel(worker_->get(), operation.request);
    }
    const auto is_its = [lost = peer](const Operation& operation) { return operation.peer == lost; };
    const auto why = [reason = cause](const Operation&) { return reason; };
    EndReads(is_its, why);
    EndWiredRecvs(is_its, why);
    DropArrivals([lost = peer](Rank source, std::uint64_t /*tag*/) { return source == lost; });
    wires_.Close(peer);
    EndUntaken(is_its, cause);
    queued_.TakeIf([&, lost = peer](std::uint64_t /*tag*/, const QueuedRecv& recv) {
      if (recv.source == lost) ended_.End(recv.completion, health_.cause(lost));
      return recv.source == lost;
    });
  }
  EndWhatNeverComes();
}

void UcxTransport::CloseByForce(UcxEndpoint& endpoint) {
  if (endpoint.ep == nullptr) return;
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  Leave(ucp_.ucp_ep_close_nbx(std::exchange(endpoint.ep, nullptr), &param));
}

// A longer send within a node waits for the peer's answer. After CloseByForce, UCX ends such a send only once the
// peer's memory for messages has room again, and a stopped peer makes no room. But the connection is closed: whatever
// the peer answers later, UCX reads the payload no more.
void UcxTransport::EndUnansweredSends(Rank peer) {
  if (endpoints_[static_cast<std::size_t>(peer)].region().base == nullptr) return;
  for (Operation& operation : operations_) {
    const bool waits = operation.completion != nullptr && operation.request != nullptr && !operation.receives;
    if (waits && operation.peer == peer) EndBeforeUcx(operation);
  }
}

// UCX does not cancel a receive whose message has begun to arrive, and never ends it when its sender dies in the
// middle. Once all that the dead process had written is taken in, UCX touches the memory of such a receive no more.
void UcxTransport::EndWhatNeverComes() {
  const auto never_comes = [this](const Operation& operation) {
    return operation.completion != nullptr && operation.request != nullptr && operation.receives &&
           health_.lost(operation.peer) && news_[static_cast<std::size_t>(operation.peer)].link_ended;
  };
  if (health_.losses().empty() || std::none_of(operations_.begin(), operations_.end(), never_comes)) return;
  if (!ProgressAll()) return;  // more is left to take in: the next Check goes on
  for (Operation& operation : operations_) {
    if (never_comes(operation)) EndBeforeUcx(operation);
  }
}

bool UcxTransport::HasLeftNode(Rank peer) const {
  return news_[static_cast<std::size_t>(peer)].link_ended && health_.said_goodbye(peer) && !health_.lost(peer);
}

// UCX does not notice that a peer which has left answers no more. What the peer has taken is known once all is read
// that the peer had written before its link ended.
void UcxTransport::EndSendsToLeavers() {
  const auto never_ends = [this](const Operation& operation) {
    return operation.completion != nullptr && !operation.receives && !operation.wired && HasLeftNode(operation.peer);
  };
  if (!greeted_ || !a_link_has_ended_ || std::none_of(operations_.begin(), operations_.end(), never_ends)) return;
  if (!ProgressAll()) return;  // more is left to take in: the next Check goes on
  for (UcxEndpoint& endpoint : endpoints_) {
    const Rank peer = endpoint.peer();
    if (!HasLeftNode(peer) || wires_.To(peer) != nullptr) continue;
    CloseByForce(endpoint);
    EndUnansweredSends(peer);
    EndUntaken([peer](const Operation& operation) { return operation.peer == peer; }, HasShutDown(peer));
  }
}

// The operation stays allocated, because UCX may call back later, at the latest when the worker is destroyed.
void UcxTransport::EndBeforeUcx(Operation& operation) {
  ended_.End(std::exchange(operation.completion, nullptr), VerdictOn(operation.peer));
  ++orphans_;
}

void UcxTransport::Leave(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) left_.push_back(request);
}

void UcxTransport::FreeLeft() {
  std::erase_if(left_, [this](ucs_status_ptr_t request) {
    if (ucp_.ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_.ucp_request_free(request);
    return true;
  });
}

}  // namespace tutti::ucx
