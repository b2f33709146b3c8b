// Messages to and from ranks on other nodes. A short message goes over the short wire (short_wire.h), and ends when the
// kernel has taken it; a longer one is announced there, and its payload goes over the wire (wire.h): its Send ends when
// the kernel has taken the payload. wired_arrivals.cc has what comes.
#include <utility>

#include "base/clock.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {

UcxTransport::Operation* UcxTransport::NewWiredOperation(Completion* completion, Rank peer, std::uint64_t tag,
                                                         std::int64_t bytes, bool receives) {
  Operation* const operation = NewOperation(completion, peer, tag, bytes, receives);
  operation->wired = true;
  ++wired_operations_;
  return operation;
}

void UcxTransport::PostWiredSend(ShortWire& short_wire, Rank to, std::uint64_t tag, const void* data,
                                 std::int64_t bytes, Completion* completion) {
  const auto new_operation = [&] { return NewWiredOperation(completion, to, tag, bytes, /*receives=*/false)->number; };
  Wire& wire = *wires_.To(to);
  const bool is_long = bytes > kMaxShort;
  // What has become of a peer whose wires have ended is about to be known.
  if (!short_wire.sends() || (is_long && !wire.sends())) return held_.push_back({completion, to});
  if (is_long) {
    short_wire.Announce(tag, bytes, wire.Send(data, bytes, new_operation()));
  } else if (short_wire.Send(tag, data, bytes, new_operation)) {
    ended_.End(completion, absl::OkStatus());
  }
}

bool UcxTransport::MarkTheOneAwaited() {
  if (wired_operations_ != 1 || !queued_.empty()) return false;
  const Operation& receive = operations_[last_expected_];
  const bool waits = receive.completion != nullptr && receive.wired && receive.receives && receive.bytes <= kMaxShort;
  ShortWire* const wire = waits ? wires_.ShortTo(receive.peer) : nullptr;
  if (wire != nullptr) wire->SetReady(/*readable=*/true, /*writable=*/false, /*closed=*/false);
  return wire != nullptr;
}

bool UcxTransport::ProgressWires(bool looks) {
  const bool waits = wired_operations_ > 0 || !queued_.empty();
  const bool moved = wires_.Progress(looks || (waits && !MarkTheOneAwaited()), *this);
  TakeEndedOnWires();
  wires_.TakeBroken([this](Rank peer, Wire& wire) {
    health_.SuspectDeath(peer, *wire.broken(), NanosIn(kAfterError));
    HoldWired(peer);
  });
  wires_.TakeShortEnded([this](Rank peer, ShortWire& wire) {
    health_.SuspectDeath(peer, *wire.ended(), NanosIn(kAfterError));
    HoldWiredSends(peer, /*is_long=*/false);
    wire.ForgetSends();
  });
  return moved;
}

void UcxTransport::TakeEndedOnWires() {
  wires_.TakeEnded([this](const WireEnd& end) { Finish(operations_[end.operation], absl::OkStatus()); });
}

// A connection that is closed with unread bytes in it throws away what it has not delivered yet: this rank goes on
// reading meanwhile. No event tells that bytes have been delivered.
void UcxTransport::DeliverWired(std::int64_t end_ns) {
  constexpr absl::Duration kPause = absl::Microseconds(200);
  wires_.ForEach([](Rank /*peer*/, Wire& wire, ShortWire& short_wire) {
    wire.FinishSending();
    short_wire.FinishSending();
  });
  const auto delivered = [this] {
    bool all = true;
    wires_.ForEach([&](Rank peer, Wire& wire, ShortWire& short_wire) {
      all &= (wire.IsDelivered() && short_wire.IsDelivered()) || health_.lost(peer);
    });
    return all;
  };
  while (MonotonicNanos() < end_ns && !DriveUntil(std::min(end_ns, NanosIn(kPause)), delivered)) {
  }
}

void UcxTransport::HoldWiredSends(Rank peer, bool is_long) {
  for (Operation& operation : operations_) {
    const bool waits = operation.completion != nullptr && operation.wired && !operation.receives;
    if (!waits || operation.peer != peer || (operation.bytes > kMaxShort) != is_long) continue;
    held_.push_back({operation.completion, peer});
    Release(&operation);
  }
}

void UcxTransport::HoldWired(Rank peer) {
  HoldWiredSends(peer, /*is_long=*/true);
  Wire* const wire = wires_.To(peer);
  wire->Drop([&](std::uint32_t number) {
    held_.push_back({operations_[number].completion, peer});
    Release(&operations_[number]);
    return true;
  });
  wire->Close();
}

}  // namespace tutti::ucx
