#include "transports/faulty/transport.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "transports/errors.h"

namespace tutti {
namespace faulty {

FaultyTransport::~FaultyTransport() { Shutdown(DestroyedWithoutShutdown(rank_)); }

absl::Status FaultyTransport::Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                                      ConnectWatch watch) {
  rank_ = rank;
  if (absl::Status status = inner().Connect(rank, addresses, deadline, watch); !status.ok()) return status;
  for (Rank peer = 0; peer < static_cast<Rank>(addresses.size()); ++peer) {
    endpoints_.emplace_back(this, peer, &inner().endpoint(peer));
  }
  if (!Dies(plan_, rank_, kAtConnect)) return absl::OkStatus();
  Die(kAtConnect);
  ShutDown(death_);
  return death_;
}

void FaultyTransport::PostRecv(FaultyEndpoint& from, std::uint64_t tag, void* data, std::int64_t bytes,
                               Completion* completion) {
  if (from.peer() != rank_) {
    if (IsDead()) return ended_.End(completion, death_);
    if (renames_tags_) tag = from.received_tags.Next(tag);
  }
  from.inner().Recv(tag, data, bytes, completion);
}

// Refuses receives from any source where messages are duplicated: a receive must then know which use of its tag it
// meets, and uses are counted by sender.
void FaultyTransport::RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  if (IsDead()) return ended_.End(completion, death_);
  if (renames_tags_ && !shut_down_) {
    return ended_.End(
        completion, absl::UnimplementedError("a receive from any source cannot tell a message from its duplicate: with "
                                             "kDuplicate in the FaultPlan, receive from one rank"));
  }
  inner().RecvFromAny(tag, data, bytes, completion);
}

void FaultyTransport::PostSend(FaultyEndpoint& to, PostedSend send) {
  if (to.peer() == rank_ || to.given_up || shut_down_)
    return to.inner().Send(send.tag, send.data, send.bytes, send.completion);
  if (IsDead()) return ended_.End(send.completion, death_);
  const std::int64_t number = to.messages++;
  if (renames_tags_) send.tag = to.sent_tags.Next(send.tag);
  Fate fate = FateOf(plan_, rank_, to.peer(), number);
  to.lost |= fate.link_lost;
  if (to.lost && !fate.link_lost) fate.befallen.push_back(FaultKind::kHalfOpen);
  for (const FaultKind kind : fate.befallen) {
    const bool needs_contents = kind == FaultKind::kCorrupt || kind == FaultKind::kTruncate;
    if (send.bytes > 0 || !needs_contents) Report(kind, to.peer(), number);
  }
  if (fate.lost || to.lost) return ended_.End(send.completion, absl::OkStatus());

  const std::int64_t now_ns = MonotonicNanos();
  std::int64_t leaves_ns = now_ns;
  if (fate.seconds_per_byte > 0) {
    leaves_ns = NanosAfter(std::max(leaves_ns, to.free_ns),
                           absl::Seconds(fate.seconds_per_byte * static_cast<double>(send.bytes)));
    to.free_ns = leaves_ns;
  }
  leaves_ns =
      NanosAfter(leaves_ns, fate.latency + fate.delay + (fate.overtaken ? fate.patience : absl::ZeroDuration()));
  const bool follows = Follows(to, send, leaves_ns);
  if (follows) fate.overtaken = false;
  Held message = {&to, send, std::move(fate)};
  if (follows || leaves_ns > now_ns) {
    held_.emplace(leaves_ns, std::move(message));
  } else {
    Leave(message);
  }
}

// No network lets messages of one tag overtake each other: a transport promises their order.
bool FaultyTransport::Follows(const FaultyEndpoint& to, const PostedSend& send, std::int64_t& leaves_ns) const {
  bool follows = false;
  for (const auto& [before_ns, message] : held_) {
    if (message.to != &to || message.send.tag != send.tag) continue;
    follows = true;
    leaves_ns = std::max(leaves_ns, before_ns);
  }
  return follows;
}

void FaultyTransport::Leave(const Held& message) {
  Transmit(message);
  for (auto held = held_.begin(); held != held_.end();) {
    const auto next = std::next(held);
    if (held->second.to == message.to && held->second.fate.overtaken) Transmit(held_.extract(held).mapped());
    held = next;
  }
}

void FaultyTransport::Transmit(const Held& message) {
  const auto& [to, send, fate] = message;
  std::int64_t bytes = send.bytes;
  if (fate.truncated && bytes > 0)
    bytes -= 1 + static_cast<std::int64_t>(fate.damage % static_cast<std::uint64_t>(bytes));
  const bool corrupted = fate.corrupted && bytes > 0;
  if (!corrupted && !fate.duplicated) return to->inner().Send(send.tag, send.data, bytes, send.completion);

  Copy& copy = copies_.emplace_back();
  copy.done = &OnCopySent;
  copy.transport = this;
  copy.self = std::prev(copies_.end());
  copy.to = to;
  copy.tag = send.tag;
  const auto* const data = static_cast<const std::byte*>(send.data);
  copy.contents.assign(data, data + bytes);
  copy.callers = send.completion;
  copy.sends_again = fate.duplicated;
  if (corrupted) {
    const std::uint64_t bit = fate.damage % (8 * static_cast<std::uint64_t>(bytes));
    copy.contents[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  to->inner().Send(copy.tag, copy.contents.data(), bytes, &copy);
}

void FaultyTransport::OnCopySent(Completion* completion, const absl::Status& status) {
  auto& copy = *static_cast<Copy*>(completion);
  FaultyTransport& transport = *copy.transport;
  if (Completion* const callers = std::exchange(copy.callers, nullptr)) callers->done(callers, status);
  if (std::exchange(copy.sends_again, false) && status.ok() && !transport.shut_down_) {
    copy.to->inner().Send(copy.tag, copy.contents.data(), static_cast<std::int64_t>(copy.contents.size()), &copy);
  } else {
    transport.copies_.erase(copy.self);
  }
}

bool FaultyTransport::IsDead() {
  const std::int64_t number = posts_++;
  if (shut_down_) return false;  // the inner transport ends what is posted from now on
  if (death_.ok() && Dies(plan_, rank_, number)) Die(number);
  return !death_.ok();
}

void FaultyTransport::Die(std::int64_t number) {
  Report(FaultKind::kKill, kEveryRank, number);
  if (plan_.kills_process) kill(getpid(), SIGKILL);
  const std::string when =
      number == kAtConnect ? "when the rank was connected" : absl::StrCat("before message ", number, " of the rank");
  death_ = Died(rank_, absl::StrCat("the fault plan killed the rank ", when));
}

void FaultyTransport::Report(FaultKind kind, Rank to, std::int64_t number) const {
  if (plan_.on_fault != nullptr) plan_.on_fault({.kind = kind, .from = rank_, .to = to, .number = number});
}

bool FaultyTransport::MoveHeld() {
  if (shut_down_) return false;
  if (!death_.ok()) {
    ShutDown(death_);
    return true;
  }
  const std::int64_t now_ns = MonotonicNanos();
  while (!held_.empty() && held_.begin()->first <= now_ns) Leave(held_.extract(held_.begin()).mapped());
  return false;
}

bool FaultyTransport::Progress() {
  bool called = MoveHeld();
  called |= inner().Progress();
  return ended_.CallAll() || called;
}

bool FaultyTransport::Drain() {
  bool called = MoveHeld();
  called |= inner().Drain();
  return ended_.CallAll() || called;
}

bool FaultyTransport::CallEnded() {
  const bool called = inner().CallEnded();
  return ended_.CallAll() || called;
}

void FaultyTransport::Sleep(absl::Time until) {
  const bool dies = !death_.ok() && !shut_down_;
  if (dies || !ended_.empty()) return;
  if (!held_.empty()) until = std::min(until, absl::Now() + LeftUntil(held_.begin()->first));
  inner().Sleep(until);
}

// Ends the messages that wait here for a lost peer with the cause of the loss.
absl::Span<const Loss> FaultyTransport::Check() {
  const absl::Span<const Loss> losses = inner().Check();
  for (; losses_seen_ < losses.size() && !endpoints_.empty(); ++losses_seen_) {
    const Loss& loss = losses[losses_seen_];
    FaultyEndpoint& lost = endpoints_[static_cast<std::size_t>(loss.peer)];
    lost.given_up = true;
    std::erase_if(held_, [&](const auto& held) {
      if (held.second.to != &lost) return false;
      ended_.End(held.second.send.completion, loss.cause);
      return true;
    });
  }
  return losses;
}

void FaultyTransport::Disconnect(Rank peer, const absl::Status& cause) {
  inner().Disconnect(peer, cause);
  Check();
}

void FaultyTransport::Shutdown(const absl::Status& cause) {
  if (!shut_down_) ShutDown(death_.ok() ? cause : death_);
}

void FaultyTransport::ShutDown(const absl::Status& cause) {
  shut_down_ = true;
  inner().Shutdown(cause);
  const absl::Status end = cause.ok() ? HasShutDown(rank_) : cause;
  for (const auto& [leaves_ns, message] : held_) ended_.End(message.send.completion, end);
  held_.clear();
  ended_.CallAll();
}

}  // namespace faulty

absl::StatusOr<std::unique_ptr<Transport>> MakeFaultyTransport(std::unique_ptr<Transport> inner, FaultPlan plan) {
  if (inner == nullptr) return absl::InvalidArgumentError("MakeFaultyTransport: inner is null; expected a transport");
  if (absl::Status status = faulty::Validate(plan); !status.ok()) return status;
  return std::make_unique<faulty::FaultyTransport>(std::move(inner), std::move(plan));
}

}  // namespace tutti
