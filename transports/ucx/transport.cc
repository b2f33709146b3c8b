#include "transports/ucx/transport.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/told_by.h"
#include "transports/errors.h"

namespace tutti::ucx {
namespace {

// The longest nap while UCX cannot be armed: at the end of each nap a rank looks again for room in a peer's memory.
constexpr absl::Duration kWatchPause = absl::Milliseconds(100);  // between two questions to the watch of Connect
constexpr absl::Duration kLongestNap = absl::Milliseconds(1);

// The longest Drain while peers never stop sending.
constexpr absl::Duration kDrainLimit = absl::Milliseconds(10);

// The most bytes of announced messages that one Progress reads: some tens of microseconds.
constexpr std::int64_t kReadAtOnce = 512 << 10;

// Shutdown's limits; their sum is below the two seconds of its contract.
constexpr absl::Duration kSendsLimit = absl::Milliseconds(1000);
constexpr absl::Duration kGoodbyeLimit = absl::Milliseconds(1500);  // a limit that includes kSendsLimit
constexpr absl::Duration kCloseLimit = absl::Milliseconds(400);
// The limits of a rank that aborts, whose callers wait to be told: ranks of its node have heard of the abort through
// their sockets by then, others hear of it over their wires.
constexpr absl::Duration kAbortLimit = absl::Milliseconds(80);
constexpr absl::Duration kAbortLimitOnOneNode = absl::Milliseconds(10);
constexpr absl::Duration kAbortCloseLimit = absl::Milliseconds(20);
// The time that a peer on another node gets to read why this rank aborts: when a connection is closed while the peer
// sends, all that the peer has not read is lost. This time is not given after a deadline has passed, because some peer
// then reads nothing.
constexpr absl::Duration kAbortLinger = absl::Milliseconds(30);

}  // namespace

UcxTransport::~UcxTransport() { Shutdown(DestroyedWithoutShutdown(rank_)); }

bool UcxTransport::Progress() {
  ProgressUcx();
  MatchQueued();
  const bool read = ReadAnnounced(kReadAtOnce);
  const bool wired = worker_ != nullptr && ProgressWires(/*looks=*/false);
  return CallEnded() || read || wired;
}

// Where a rank with wires waits for nothing that UCX moves, UCX has nothing to do but to answer the peers that ask
// whether this rank lives, and is called seldom.
bool UcxTransport::ProgressUcx() {
  constexpr int kCallsWithoutUcx = 32;
  if (worker_ == nullptr) return false;
  const bool awaited = operations_.size() - free_operations_.size() > wired_operations_ || !queued_.empty() ||
                       control_sends_ > 0 || !left_.empty();
  if (!wires_.empty() && !awaited && ++unprogressed_ < kCallsWithoutUcx) return false;
  unprogressed_ = 0;
  if (ucp_.ucp_worker_progress(worker_->get()) == 0) return false;
  nap_ = kShortestNap;
  may_match_ = true;
  return true;
}

bool UcxTransport::Drain() {
  if (worker_ != nullptr) {
    const std::int64_t end_ns = NanosIn(kDrainLimit);
    ProgressAll();
    MatchQueued();
    ThrowAwayUnwanted();
    while (ReadAnnounced(kReadAtOnce) && MonotonicNanos() < end_ns) {
    }
  }
  return CallEnded();
}

void UcxTransport::Wake() { WakeSleeper(wake_); }

void UcxTransport::Sleep(absl::Time until) {
  if (!ended_.empty() || !reads_.empty()) return;
  const std::uint64_t notes = notes_.come();
  const std::uint64_t answers = answers_;
  const bool armed = worker_ != nullptr && Arm();
  if (MatchQueued()) return;
  health_.Conclude(MonotonicNanos());
  EndHeld();
  const bool has_news = notes_.come() != notes || answers_ != answers || health_.losses().size() != losses_seen_;
  if (!ended_.empty() || !reads_.empty() || has_news) return;
  Wait(std::min(NanosAt(until), health_.due_ns()), armed || worker_ == nullptr, /*wakeable=*/true);
}

bool UcxTransport::ProgressAll() {
  constexpr int kPollsPerLook = 16;
  std::int64_t end_ns = kNeverNanos;
  for (int polls = 1;; ++polls) {
    const bool moved = ucp_.ucp_worker_progress(worker_->get()) != 0;
    const bool wired = ProgressWires(/*looks=*/true);
    if (!wired && !moved) break;
    nap_ = kShortestNap;
    may_match_ |= moved;
    // One pass may move a megabyte of each wire, so the clock is read after each pass that moved wires.
    if (!wired && polls % kPollsPerLook != 0) continue;
    const std::int64_t now_ns = MonotonicNanos();
    if (now_ns >= end_ns) return false;
    if (end_ns == kNeverNanos) end_ns = NanosAfter(now_ns, kDrainLimit);
  }
  return true;
}

bool UcxTransport::Arm() {
  // UCX is busy when something has come since the last look: while nothing is sent, at most once for each of its few
  // transports.
  constexpr int kTries = 8;
  for (int tries = 0; tries < kTries && ProgressAll(); ++tries) {
    if (ucp_.ucp_worker_arm(worker_->get()) == UCS_OK) return true;
  }
  return false;
}

void UcxTransport::Wait(std::int64_t until_ns, bool armed, bool wakeable) {
  const int event_fd = worker_ == nullptr || !armed ? -1 : worker_->event_fd();
  if (armed) {
    nap_ = kShortestNap;
  } else {
    until_ns = std::min(until_ns, NanosIn(nap_));
    nap_ = std::min(2 * nap_, kLongestNap);
  }
  // poll skips negative descriptors. Nobody takes in who still comes to the meeting of a rank that has shut down.
  std::array<pollfd, 5> fds = {{{event_fd, POLLIN, 0},
                                {links_.fd(), POLLIN, 0},
                                {wakeable ? wake_.get() : -1, POLLIN, 0},
                                {wires_.fd(), POLLIN, 0},
                                {shut_down_ ? -1 : meeting_.fd(), POLLIN, 0}}};
  const timespec timeout = absl::ToTimespec(std::clamp(LeftUntil(until_ns), absl::ZeroDuration(), absl::Hours(1)));
  if (ppoll(fds.data(), fds.size(), &timeout, nullptr) <= 0) return;
  if (fds[1].revents != 0) ReadLinks();
  std::uint64_t wakes = 0;
  if (fds[2].revents != 0) (void)!read(wake_.get(), &wakes, sizeof(wakes));
}

bool UcxTransport::DriveUntil(std::int64_t end_ns, absl::FunctionRef<bool()> done) {
  for (;;) {
    const bool armed = Arm();
    ReadLinks();
    if (!shut_down_) met_ = AdvanceMeeting();
    health_.Conclude(MonotonicNanos());
    if (done()) return true;
    if (MonotonicNanos() >= end_ns) return false;
    // While this rank connects, `done` asks the watch of Connect, of which no descriptor tells.
    const std::int64_t watch_ns = watch_ != nullptr ? NanosIn(kWatchPause) : kNeverNanos;
    Wait(std::min({end_ns, health_.due_ns(), watch_ns}), armed, /*wakeable=*/false);
  }
}

bool UcxTransport::Flush(std::int64_t end_ns, absl::FunctionRef<bool()> give_up) {
  const ucp_request_param_t param = {};
  const ucs_status_ptr_t request = ucp_.ucp_worker_flush_nbx(worker_->get(), &param);
  if (!UCS_PTR_IS_PTR(request)) return true;
  const auto flushed = [&] { return ucp_.ucp_request_check_status(request) != UCS_INPROGRESS; };
  DriveUntil(end_ns, [&] { return flushed() || give_up(); });
  const bool done = flushed();
  ucp_.ucp_request_free(request);
  return done;
}

void UcxTransport::ReadLinks() {
  links_.Read([this](Rank rank, const Control* control) {
    if (control != nullptr) return Handle(rank, *control);
    news_[static_cast<std::size_t>(rank)].link_ended = true;
    a_link_has_ended_ = true;
    health_.SuspectDeath(rank, "its connection on this node closed without a goodbye", NanosIn(kAfterLinkEnds));
  });
}

void UcxTransport::Handle(Rank from, const Control& control) {
  PeerNews& news = news_[static_cast<std::size_t>(from)];
  switch (control.kind) {
    case Control::Kind::kHello:
      news.hello = true;
      news.reads = control.reads;
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
      health_.Lose(from, ToldBy(from, control.cause));
      return;
    case Control::Kind::kAsks:
      return;
    case Control::Kind::kAnswers:
      news.waits_for = control.waits_for;
      ++answers_;
      return;
    case Control::Kind::kNote:
      if (!health_.lost(from)) notes_.Add({from, control.group, control.cause});
      return;
    case Control::Kind::kTaken:
      return HearTaken(from, control.message);
  }
}

// A goodbye follows all messages that its sender has sent over UCX, or over the short wire, and says how many went over
// the wire, some of which may still be on their way there; what has not come when the wire is closed never comes. When
// a peer of this node could not take this rank's goodbye in time, or died before, the end of the peer's link stands for
// the goodbye: the link ends after all that the peer has written to UCX's shared memory, and what comes over wires has
// come when they end.
bool UcxTransport::HasLeft(Rank peer) {
  PeerNews& news = news_[static_cast<std::size_t>(peer)];
  if (news.left || worker_ == nullptr) return news.left;
  ReadLinks();
  const bool link_ended = news.link_ended;
  const bool drained = ProgressAll();
  MatchQueued();
  const Wire* const wire = wires_.To(peer);
  const bool wire_ended = wire == nullptr || wire->broken() || wire->messages_received() == news.wired;
  const bool wires_closed = wire == nullptr || (wire->broken() && wires_.ShortTo(peer)->ended());
  const bool over_link = wires_closed && health_.said_goodbye(peer) && link_ended && drained;
  news.left = (wire_ended && news.goodbye) || over_link;
  return news.left;
}

bool UcxTransport::IsReceivingFrom(Rank peer) const {
  const Wire* const wire = wires_.To(peer);
  return wire != nullptr && wire->has_receives();
}

// The link of a process ends when the process ends, and when its rank shuts down: after either, no step of that rank's
// engine runs.
bool UcxTransport::HasEnded(Rank peer) {
  if (!shut_down_) ReadLinks();
  return news_[static_cast<std::size_t>(peer)].link_ended;
}

void UcxTransport::AskWaitsFor(Rank peer) {
  news_[static_cast<std::size_t>(peer)].waits_for.reset();
  if (worker_ == nullptr || shut_down_ || health_.gone(peer)) return;
  Control question;
  question.kind = Control::Kind::kAsks;
  question.from = rank_;
  SendControl(endpoints_[static_cast<std::size_t>(peer)], question);
}

void UcxTransport::Tell(Rank peer, std::uint32_t group, const absl::Status& cause) {
  if (worker_ == nullptr || shut_down_ || health_.gone(peer)) return;
  Control note;
  note.kind = Control::Kind::kNote;
  note.from = rank_;
  note.group = group;
  note.cause = cause;
  SendControl(endpoints_[static_cast<std::size_t>(peer)], note);
}

absl::Status UcxTransport::Seclude(std::byte* data, std::int64_t bytes) {
  const std::ptrdiff_t offset = data - region_.mapping.base();
  if (offset < 0 || bytes < 0 || offset > region_.mapping.bytes() || bytes > region_.mapping.bytes() - offset) {
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes at offset ", offset, " are not within the region of ",
                                                   region_.mapping.bytes(), " bytes"));
  }
  const absl::StatusOr<absl::Span<std::byte>> pages = tutti::Seclude(data, bytes);
  if (pages.ok() && !pages->empty()) secluded_.push_back(*pages);
  return pages.status();
}

bool UcxTransport::SendsEnded() const {
  return std::none_of(operations_.begin(), operations_.end(), [this](const Operation& operation) {
    return operation.completion != nullptr && !operation.receives && !health_.gone(operation.peer);
  });
}

// Tells all peers, over the node's links, over UCX and over the short wires. A goodbye over UCX waits until the
// messages before it have been taken, because UCX at first only announces the larger ones. Then this rank waits until
// the peers have seen the goodbye, so that nothing is lost when it closes its connections.
void UcxTransport::SayFarewell(const absl::Status& cause) {
  const std::int64_t start_ns = MonotonicNanos();
  Control farewell;
  farewell.kind = cause.ok() ? Control::Kind::kGoodbye : Control::Kind::kAbort;
  farewell.from = rank_;
  farewell.cause = cause;
  links_.Tell(farewell);
  if (cause.ok()) DriveUntil(NanosAfter(start_ns, kSendsLimit), [this] { return SendsEnded(); });
  for (UcxEndpoint& endpoint : endpoints_) {
    if (endpoint.peer() == rank_ || health_.gone(endpoint.peer())) continue;
    const Wire* const wire = wires_.To(endpoint.peer());
    farewell.message = wire != nullptr ? wire->messages_sent() : 0;
    SendControl(endpoint, farewell);
  }
  const auto seen = [&](const UcxEndpoint& endpoint) {
    const Rank peer = endpoint.peer();
    return peer == rank_ || health_.gone(peer) || news_[static_cast<std::size_t>(peer)].goodbye_seen;
  };
  const bool one_node = std::all_of(endpoints_.begin(), endpoints_.end(),
                                    [](const UcxEndpoint& endpoint) { return endpoint.region().base != nullptr; });
  const std::int64_t end_ns = NanosAfter(start_ns, cause.ok() ? kGoodbyeLimit
                                                   : one_node ? kAbortLimitOnOneNode
                                                              : kAbortLimit);
  DriveUntil(end_ns, [&] {
    const bool told = control_sends_ == 0 && !wires_.holds_unawaited();
    return told && (!cause.ok() || std::all_of(endpoints_.begin(), endpoints_.end(), seen));
  });
  if (cause.ok()) DeliverWired(end_ns);
  if (!cause.ok() && !one_node && !absl::IsDeadlineExceeded(cause)) {
    DriveUntil(NanosIn(kAbortLinger), [&] {
      return std::all_of(endpoints_.begin(), endpoints_.end(), [&](const UcxEndpoint& endpoint) {
        return endpoint.peer() == rank_ || endpoint.region().base != nullptr || health_.gone(endpoint.peer());
      });
    });
  }
  // Connections that are still being set up must be ready before they are closed: see GreetAll.
  if (!greeted_) Flush(end_ns, [] { return false; });
}

// Ends every operation, and destroys the worker and its context: from then on UCX touches no memory.
void UcxTransport::CloseWorker(bool aborts) {
  for (const Operation& operation : operations_) {
    if (operation.completion != nullptr && operation.receives && operation.request != nullptr) {
      ucp_.ucp_request_cancel(worker_->get(), operation.request);
    }
  }
  TakeEndedOnWires();
  const auto all = [](const Operation&) { return true; };
  const auto why = [&](const Operation&) { return cause_; };
  EndReads(all, why);
  EndWiredRecvs(all, why);
  DropArrivals([](Rank /*source*/, std::uint64_t /*tag*/) { return true; });
  wires_.CloseAll();
  EndUntaken(all, cause_);
  if (control_receive_ != nullptr) ucp_.ucp_request_cancel(worker_->get(), control_receive_);
  for (UcxEndpoint& endpoint : endpoints_) CloseByForce(endpoint);
  const auto all_ended = [&] {
    FreeLeft();
    return left_.empty() && control_sends_ == 0 && control_receive_ == nullptr &&
           free_operations_.size() + orphans_ == operations_.size();
  };
  DriveUntil(NanosIn(aborts ? kAbortCloseLimit : kCloseLimit), all_ended);
  worker_.reset();
  left_.clear();
  queued_.TakeIf([&](std::uint64_t /*tag*/, const QueuedRecv& recv) {
    ended_.End(recv.completion, cause_);
    return true;
  });
  for (Operation& operation : operations_) {
    if (operation.completion != nullptr) ended_.End(operation.completion, cause_);
  }
}

void UcxTransport::Shutdown(const absl::Status& cause) {
  if (shut_down_) return;
  shut_down_ = true;
  cause_ = cause.ok() ? HasShutDown(rank_) : cause;
  // In a forked child the peers are the parent's, and the memory of unfinished messages is the child's own copy.
  if (worker_->in_forked_child()) return worker_.reset();
  meeting_.Close();  // where Connect has failed
  if (!endpoints_.empty()) SayFarewell(cause);
  CloseWorker(/*aborts=*/!cause.ok());
  links_.Close();
  CallEnded();
}

}  // namespace tutti::ucx
