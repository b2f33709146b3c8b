// What comes over the short wires from ranks on other nodes: messages, each of which goes to the oldest receive of its
// source and tag, or waits here for one; announcements, which do the same; and control messages. A receive from any
// source takes only what waits (any_source.cc).
#include <cstring>
#include <utility>

#include "transports/errors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {

void UcxTransport::PostWiredRecv(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  Operation& operation = *NewWiredOperation(completion, from, tag, bytes, /*receives=*/true);
  operation.data = data;
  const ucp_tag_t key = TagOf(from, tag);
  if (arrived_.Oldest(key) == nullptr) {
    last_expected_ = operation.number;
    return expected_.Add(key, operation.number);
  }
  Meet(operation, arrived_.Take(key));
}

std::byte* UcxTransport::BeginFrame(Rank peer, const ShortHeader& header) {
  Arriving& arriving = news_[static_cast<std::size_t>(peer)].arriving;
  arriving = {.tag = header.tag, .receive = {}, .early = {}};
  if (header.kind == ShortHeader::Kind::kAnnounced) return nullptr;
  if (header.kind == ShortHeader::Kind::kWhole) {
    if (health_.lost(peer) || discarded_.Contains(GroupOf(header.tag))) return nullptr;
    const ucp_tag_t key = TagOf(peer, header.tag);
    if (expected_.Oldest(key) != nullptr) {
      Operation& receive = operations_[expected_.Take(key)];
      if (receive.bytes != header.bytes) {
        Finish(receive, WrongLength(peer, header.bytes, receive.bytes));
        return nullptr;
      }
      arriving.receive = receive.number;
      return static_cast<std::byte*>(receive.data);
    }
  }
  arriving.early = early_.Take(header.bytes);
  return arriving.early.get();
}

bool UcxTransport::EndFrame(Rank peer, const ShortHeader& header) {
  auto [tag, receive, early] = std::exchange(news_[static_cast<std::size_t>(peer)].arriving, {});
  if (header.kind == ShortHeader::Kind::kControl) {
    const std::optional<Control> control = Decode(reinterpret_cast<const char*>(early.get()), sizeof(ControlFrame));
    early_.Return(std::move(early), header.bytes);
    if (!control.has_value() || control->from != peer) return false;
    Handle(peer, *control);
    Answer(peer, *control);
  } else if (receive) {
    Finish(operations_[*receive], absl::OkStatus());
  } else if (header.kind == ShortHeader::Kind::kAnnounced) {
    TakeIn(peer, tag, {.bytes = header.bytes, .early = {}, .number = header.number});
  } else if (early != nullptr) {  // else nobody wants the message
    TakeIn(peer, tag, {.bytes = header.bytes, .early = std::move(early), .number = {}});
  }
  return true;
}

void UcxTransport::TakeIn(Rank peer, std::uint64_t tag, Arrival arrival) {
  if (health_.lost(peer) || discarded_.Contains(GroupOf(tag))) return Drop(peer, std::move(arrival));
  const ucp_tag_t key = TagOf(peer, tag);
  if (expected_.Oldest(key) != nullptr) return Meet(operations_[expected_.Take(key)], std::move(arrival));
  arrived_.Add(key, std::move(arrival));
  may_match_ = true;
}

void UcxTransport::Meet(Operation& receive, Arrival arrival) {
  const bool fits = arrival.bytes == receive.bytes;
  if (fits && arrival.number) {
    if (wires_.To(receive.peer)->Receive(*arrival.number, receive.data, receive.bytes, receive.number)) return;
    held_.push_back({receive.completion, receive.peer});
    return Release(&receive);
  }
  absl::Status result;
  if (!fits) {
    result = WrongLength(receive.peer, arrival.bytes, receive.bytes);
  } else if (arrival.bytes > 0) {
    std::memcpy(receive.data, arrival.early.get(), static_cast<std::size_t>(arrival.bytes));
  }
  if (arrival.number) {
    wires_.To(receive.peer)->Discard(*arrival.number, arrival.bytes);
  } else {
    early_.Return(std::move(arrival.early), arrival.bytes);
  }
  Finish(receive, std::move(result));
}

void UcxTransport::Drop(Rank peer, Arrival arrival) {
  Wire* const wire = wires_.To(peer);
  if (!arrival.number) return early_.Return(std::move(arrival.early), arrival.bytes);
  if (wire != nullptr) wire->Discard(*arrival.number, arrival.bytes);
}

void UcxTransport::DropArrivals(absl::FunctionRef<bool(Rank, std::uint64_t)> drops) {
  arrived_.TakeIf([&](ucp_tag_t key, Arrival& arrival) {
    const bool dropped = drops(SourceOf(key), key & kTagMask);
    if (dropped) Drop(SourceOf(key), std::move(arrival));
    return dropped;
  });
  wires_.ForEach([&](Rank peer, Wire& /*wire*/, ShortWire& short_wire) {
    Arriving& arriving = news_[static_cast<std::size_t>(peer)].arriving;
    if (arriving.early == nullptr || !short_wire.is_in_message() || !drops(peer, arriving.tag)) return;
    short_wire.Unwanted();
    arriving.early.reset();
  });
}

void UcxTransport::EndWiredRecvs(absl::FunctionRef<bool(const Operation&)> ends,
                                 absl::FunctionRef<absl::Status(const Operation&)> why) {
  const auto end = [&](std::uint32_t number) {
    Operation& operation = operations_[number];
    if (!ends(operation)) return false;
    Finish(operation, why(operation));
    return true;
  };
  expected_.TakeIf([&](ucp_tag_t /*key*/, std::uint32_t number) { return end(number); });
  wires_.ForEach([&](Rank peer, Wire& wire, ShortWire& short_wire) {
    wire.Drop(end);
    std::optional<std::uint32_t>& receive = news_[static_cast<std::size_t>(peer)].arriving.receive;
    if (!receive || !end(*receive)) return;
    short_wire.Unwanted();
    receive.reset();
  });
}

}  // namespace tutti::ucx
