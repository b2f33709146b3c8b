#include "transports/ucx/transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "transports/ucx/status.h"

namespace tutti::ucx {
namespace {

// A link's end means death; whoever noticed it earlier may be about to tell why.
constexpr absl::Duration kTimeToBeTold = absl::Milliseconds(5);

// Shutdown's limits; together below the two seconds of its contract.
constexpr absl::Duration kGoodbyeLimit = absl::Milliseconds(1500);
constexpr absl::Duration kAbortLimit = absl::Milliseconds(100);
constexpr absl::Duration kCloseLimit = absl::Milliseconds(400);

}  // namespace

UcxTransport::~UcxTransport() {
  Shutdown(absl::UnavailableError(absl::StrCat("rank ", rank_, " destroyed its transport without a Shutdown")));
}

bool UcxTransport::Progress() {
  if (worker_ != nullptr) worker_->ucp().ucp_worker_progress(worker_->get());
  return CallEnded();
}

bool UcxTransport::Drain() {
  if (worker_ != nullptr) ProgressAll();
  return CallEnded();
}

absl::Status UcxTransport::Check() {
  ReadLinks();
  absl::Status verdict = health_.Verdict(absl::Now());
  verdict_seen_ = !verdict.ok();
  return verdict;
}

void UcxTransport::Wake() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));  // fails only when the counter is full, and then it is awake
}

void UcxTransport::Sleep(absl::Time until) {
  if (!ended_.empty()) return;
  if (worker_ != nullptr) {
    Arm();
    if (!ended_.empty()) return;
  }
  if (!verdict_seen_ && !health_.Verdict(absl::Now()).ok()) return;
  Wait(std::min(until, health_.due()), /*wakeable=*/true);
}

void UcxTransport::ProgressAll() {
  while (worker_->ucp().ucp_worker_progress(worker_->get()) != 0) {
  }
}

void UcxTransport::Arm() {
  do {
    ProgressAll();
  } while (worker_->ucp().ucp_worker_arm(worker_->get()) == UCS_ERR_BUSY);
}

void UcxTransport::Wait(absl::Time until, bool wakeable) {
  const int event_fd = worker_ == nullptr ? -1 : worker_->event_fd();
  // poll skips negative descriptors.
  std::array<pollfd, 3> fds = {
      {{event_fd, POLLIN, 0}, {links_.fd(), POLLIN, 0}, {wakeable ? wake_.get() : -1, POLLIN, 0}}};
  const timespec timeout = absl::ToTimespec(std::clamp(until - absl::Now(), absl::ZeroDuration(), absl::Hours(1)));
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  if (fds[1].revents != 0) ReadLinks();
  std::uint64_t wakes = 0;
  if (fds[2].revents != 0) (void)!read(wake_.get(), &wakes, sizeof(wakes));
}

bool UcxTransport::DriveUntil(absl::Time deadline, absl::FunctionRef<bool()> done) {
  for (;;) {
    Arm();
    ReadLinks();
    if (done()) return true;
    if (absl::Now() >= deadline) return false;
    Wait(std::min(deadline, health_.due()), /*wakeable=*/false);
  }
}

bool UcxTransport::Flush(absl::Time deadline, absl::FunctionRef<bool()> give_up) {
  const Library& ucp = worker_->ucp();
  const ucp_request_param_t param = {};
  const ucs_status_ptr_t request = ucp.ucp_worker_flush_nbx(worker_->get(), &param);
  if (!UCS_PTR_IS_PTR(request)) return true;
  const auto flushed = [&] { return ucp.ucp_request_check_status(request) != UCS_INPROGRESS; };
  DriveUntil(deadline, [&] { return flushed() || give_up(); });
  const bool done = flushed();
  ucp.ucp_request_free(request);
  return done;
}

void UcxTransport::ReadLinks() {
  links_.Read([this](Rank rank, const Control* control) {
    if (control != nullptr) return Handle(rank, *control);
    health_.Suspect(rank, "its connection on this node closed without a goodbye", absl::Now() + kTimeToBeTold);
  });
}

void UcxTransport::Handle(Rank from, const Control& control) {
  PeerNews& news = news_[static_cast<std::size_t>(from)];
  switch (control.kind) {
    case Control::Kind::kHello:
      news.hello = true;
      return;
    case Control::Kind::kSettled:
      news.settled = true;
      return;
    case Control::Kind::kGoodbye:
      health_.SaidGoodbye(from);
      return;
    case Control::Kind::kGoodbyeSeen:
      news.goodbye_seen = true;
      return;
    case Control::Kind::kAbort:
      health_.Told(ToldBy(from, control.cause));
      return;
  }
}

// Tells all peers, over the node's links and over UCX. A goodbye waits until the peers have seen it: it follows all
// messages that were sent to them, so nothing is lost when this rank then closes its connections.
void UcxTransport::SayFarewell(const absl::Status& cause) {
  Control farewell;
  farewell.kind = cause.ok() ? Control::Kind::kGoodbye : Control::Kind::kAbort;
  farewell.from = rank_;
  farewell.cause = cause;
  links_.Tell(farewell);
  for (UcxEndpoint& endpoint : endpoints_) {
    if (endpoint.peer() != rank_ && !health_.gone(endpoint.peer())) SendControl(endpoint, farewell);
  }
  const auto seen = [&](const UcxEndpoint& endpoint) {
    const Rank peer = endpoint.peer();
    return peer == rank_ || health_.gone(peer) || news_[static_cast<std::size_t>(peer)].goodbye_seen;
  };
  const absl::Time deadline = absl::Now() + (cause.ok() ? kGoodbyeLimit : kAbortLimit);
  DriveUntil(deadline, [&] {
    return control_sends_ == 0 && (!cause.ok() || std::all_of(endpoints_.begin(), endpoints_.end(), seen));
  });
  // Connections that are still being set up: see GreetAll.
  if (!greeted_) Flush(deadline, [] { return false; });
}

// Ends every operation and gives up worker and context: from then on UCX touches no memory.
void UcxTransport::CloseWorker() {
  const Library& ucp = worker_->ucp();
  for (const Operation& operation : operations_) {
    if (operation.completion != nullptr && operation.receives) {
      ucp.ucp_request_cancel(worker_->get(), operation.request);
    }
  }
  if (control_receive_ != nullptr) ucp.ucp_request_cancel(worker_->get(), control_receive_);
  std::vector<ucs_status_ptr_t> closing;
  for (UcxEndpoint& endpoint : endpoints_) {
    if (endpoint.ep == nullptr) continue;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t request = ucp.ucp_ep_close_nbx(endpoint.ep, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
    endpoint.ep = nullptr;
  }
  const auto all_ended = [&] {
    std::erase_if(closing, [&](ucs_status_ptr_t request) {
      if (ucp.ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp.ucp_request_free(request);
      return true;
    });
    return closing.empty() && control_sends_ == 0 && control_receive_ == nullptr &&
           free_operations_.size() == operations_.size();
  };
  DriveUntil(absl::Now() + kCloseLimit, all_ended);
  worker_.reset();
  for (Operation& operation : operations_) {
    if (operation.completion != nullptr) End(operation.completion, cause_);
  }
}

void UcxTransport::Shutdown(const absl::Status& cause) {
  if (shut_down_) return;
  shut_down_ = true;
  cause_ = cause.ok() ? HasShutDown(rank_) : cause;
  if (!cause.ok()) health_.Told(cause);
  if (!endpoints_.empty()) SayFarewell(cause);
  CloseWorker();
  links_ = NodeLinks();
  while (CallEnded()) {
  }
}

}  // namespace tutti::ucx
