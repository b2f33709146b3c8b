// Messages of the UCX transport whose payload goes over the wires to other nodes (wire.h): UCX carries the announcement
// of such a message. Its Send ends when the kernel has taken all of the payload.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "transports/errors.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {

Wire* UcxTransport::WireTo(Rank peer) const {
  Wire* const wire = wires_.To(peer);
  return wire == nullptr || !wire->sends() ? nullptr : wire;
}

void UcxTransport::WiredSendEnded(Operation* operation, ucs_status_t status) {
  const Rank peer = operation->peer;
  const bool works = WireTo(peer) != nullptr;
  if (works && status == UCS_OK) return;  // Taken ends the send
  if (works) {
    health_.Suspect(peer, ucp_.ucs_status_string(status), NanosIn(kAfterUcxError));
    return HoldWiredSends(peer);
  }
  held_.push_back({operation->completion, peer});
  Release(operation);
}

void UcxTransport::BeginWired(Operation* operation, const Announcement& announcement, bool whole) {
  const Rank peer = operation->peer;
  const auto [offset, bytes, number] = announcement;
  const absl::Status malformed =
      whole && bytes > 0
          ? absl::OkStatus()
          : absl::DataLossError(absl::StrCat("rank ", peer, " has announced a message of ", bytes, " bytes"));
  absl::Status error = ErrorOfAnnounced(*operation, bytes, malformed);
  Wire& wire = *wires_.To(peer);
  if (error.ok() && wire.Receive(number, operation->data, bytes, operation->number)) return;
  if (error.ok()) {
    held_.push_back({operation->completion, peer});
  } else {
    if (whole && bytes > 0) wire.Discard(number, bytes);
    ended_.End(operation->completion, std::move(error));
  }
  Release(operation);
}

bool UcxTransport::ProgressWires(bool looks) {
  const bool moved = wires_.Progress(looks);
  wires_.TakeEnded([this](const WireEnd& end) {
    Operation& operation = operations_[end.operation];
    if (!end.receives) return Taken(operation);
    ended_.End(operation.completion, absl::OkStatus());
    Release(&operation);
  });
  wires_.TakeBroken([this](Rank peer, Wire& wire) {
    health_.Suspect(peer, *wire.broken(), NanosIn(kAfterUcxError));
    HoldWired(peer);
  });
  return moved;
}

// A connection that is closed with unread bytes in it throws away what it has not delivered yet: this rank goes on
// reading meanwhile. No event tells that bytes have been delivered.
void UcxTransport::DeliverWired(std::int64_t end_ns) {
  constexpr absl::Duration kPause = absl::Microseconds(200);
  wires_.ForEach([](Rank /*peer*/, Wire& wire) { wire.FinishSending(); });
  const auto delivered = [this] {
    bool all = true;
    wires_.ForEach([&](Rank peer, Wire& wire) { all &= wire.IsDelivered() || health_.lost(peer); });
    return all;
  };
  while (MonotonicNanos() < end_ns && !DriveUntil(std::min(end_ns, NanosIn(kPause)), delivered)) {
  }
}

// UCX may fail first where `peer` has left, of whose messages some are still to be read from the wire.
void UcxTransport::HoldWiredSends(Rank peer) {
  for (Operation& operation : operations_) {
    const bool waits = operation.completion != nullptr && operation.wired && operation.sent && operation.peer == peer;
    if (!waits) continue;
    held_.push_back({operation.completion, peer});
    Release(&operation);
  }
  wires_.To(peer)->ForgetSends();
}

void UcxTransport::HoldWired(Rank peer) {
  HoldWiredSends(peer);
  Wire* const wire = wires_.To(peer);
  // UCX's word is not awaited for the memory of messages that end here: only the wire reads and writes it.
  wire->Drop([&](std::uint32_t number) {
    held_.push_back({operations_[number].completion, peer});
    Release(&operations_[number]);
    return true;
  });
  wire->Close();
}

}  // namespace tutti::ucx
