// Announced messages of the UCX transport. UCX copies a message within a node twice, fragment by fragment, with both
// ranks in step. So a longer message is only announced to a peer that reads it where it lies: in this rank's region,
// which the peer maps, or elsewhere in the memory of this rank's process, where the system lets the peer read that
// (process_memory.h). UCX carries, under the message's own tag and in its place in the order of messages, where the
// payload lies. The receiver copies the payload once, and then tells the sender, whose Send ends. The Recv ends when
// UCX has sent what the receiver tells: UCX keeps that back while the sender's queue is full, and a receiver that has
// nothing more to wait for would not move UCX.
//
// A Send may end with an error before the receiver has taken the message. The memory then belongs to the sender again,
// and a receiver that still reads there reads something else: its Recv must not end OK. Therefore the sender makes the
// reason visible on the link between the two ranks before such a Send ends (a sender that shuts down closes the link; a
// sender that counts the receiver as lost says so there), and the receiver looks at the link after it has read.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "transports/errors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {
namespace {

// Shorter messages are copied by UCX: the sender then does not wait for the receiver.
constexpr std::int64_t kMinAnnounced = 32 << 10;

absl::Status BadAnnouncement(Rank source, std::uint64_t offset, std::int64_t bytes, std::int64_t region) {
  return absl::DataLossError(absl::StrCat("rank ", source, " has announced a message of ", bytes, " bytes at offset ",
                                          offset, ", which is not within its region of ", region, " bytes"));
}

absl::Status UnreadableAnnouncement(Rank source, std::int64_t bytes) {
  return absl::DataLossError(absl::StrCat("rank ", source, " has announced a message of ", bytes,
                                          " bytes in the memory of its process, which cannot be read here"));
}

}  // namespace

std::optional<UcxTransport::Payload> UcxTransport::PayloadReadBy(const UcxEndpoint& peer, const void* data,
                                                                 std::int64_t bytes) const {
  if (bytes < kMinAnnounced || peer.region().base == nullptr) return std::nullopt;
  const auto* const begin = static_cast<const std::byte*>(data);
  const std::byte* const base = region_.mapping.base();
  const bool in_region = begin >= base && begin - base <= region_.mapping.bytes() - bytes &&
                         std::none_of(secluded_.begin(), secluded_.end(), [&](absl::Span<const std::byte> pages) {
                           return begin < pages.data() + pages.size() && pages.data() < begin + bytes;
                         });
  if (in_region) return Payload{.place = static_cast<std::uint64_t>(begin - base), .in_region = 1};
  const bool reads =
      peer.peer() == rank_ || (news_[static_cast<std::size_t>(peer.peer())].reads && ShowsToPeers(data, bytes));
  if (!reads) return std::nullopt;
  return Payload{.place = reinterpret_cast<std::uintptr_t>(data)};
}

absl::Status UcxTransport::ErrorOfAnnounced(const Operation& operation, std::int64_t bytes,
                                            const absl::Status& malformed) const {
  if (health_.lost(operation.peer)) return health_.cause(operation.peer);
  if (operation.discarded) return HasBeenDiscarded(operation.peer, GroupOf(operation.tag));
  if (!malformed.ok()) return malformed;
  if (bytes != operation.bytes) return WrongLength(operation.peer, bytes, operation.bytes);
  return absl::OkStatus();
}

void UcxTransport::BeginRead(Operation* operation, std::size_t received) {
  Announcement announcement;
  const bool is_short = operation->bytes < static_cast<std::int64_t>(sizeof(announcement));
  std::memcpy(&announcement, is_short ? &operation->announcement : operation->data, sizeof(announcement));
  operation->request = nullptr;
  const Rank peer = operation->peer;
  const UcxEndpoint& endpoint = endpoints_[static_cast<std::size_t>(peer)];
  const auto [payload, bytes, number] = announcement;
  absl::Status malformed;
  if (payload.in_region != 0) {
    const auto all = static_cast<std::uint64_t>(endpoint.region().bytes);
    const bool within = received == sizeof(announcement) && bytes >= 0 && static_cast<std::uint64_t>(bytes) <= all &&
                        payload.place <= all - static_cast<std::uint64_t>(bytes);
    if (!within) malformed = BadAnnouncement(peer, payload.place, bytes, endpoint.region().bytes);
  } else if (received != sizeof(announcement) || bytes < 0 || (peer != rank_ && !endpoint.memory().readable())) {
    malformed = UnreadableAnnouncement(peer, bytes);
  }
  absl::Status error = ErrorOfAnnounced(*operation, bytes, malformed);
  if (error.ok()) return reads_.push_back({operation, payload, 0, number});
  TellTaken(operation, number, std::move(error));
}

absl::Status UcxTransport::CopyPayload(const Read& read, std::int64_t bytes) {
  UcxEndpoint& endpoint = endpoints_[static_cast<std::size_t>(read.operation->peer)];
  std::byte* const to = static_cast<std::byte*>(read.operation->data) + read.copied;
  const std::uint64_t place = read.payload.place + static_cast<std::uint64_t>(read.copied);
  const bool in_region = read.payload.in_region != 0;
  const auto count = static_cast<std::size_t>(bytes);
  if (!in_region && read.operation->peer != rank_) return endpoint.memory().Read(to, place, count);
  std::memcpy(to, in_region ? endpoint.region().base + place : reinterpret_cast<const std::byte*>(place), count);
  return absl::OkStatus();
}

bool UcxTransport::ReadAnnounced(std::int64_t most) {
  if (reads_.empty()) return false;
  while (most > 0 && !reads_.empty()) {
    Read& read = reads_.front();
    const std::int64_t bytes = std::min(most, read.operation->bytes - read.copied);
    const absl::Status copied = CopyPayload(read, bytes);
    most -= bytes;
    read.copied += bytes;
    if (copied.ok() && read.copied < read.operation->bytes) continue;
    EndRead(read, copied);
    reads_.erase(reads_.begin());
  }
  return true;
}

bool UcxTransport::HasRead(Rank peer, const absl::Status& copied) {
  std::atomic_thread_fence(std::memory_order_acquire);  // the memory is read before the link is looked at
  if (peer != rank_) ReadLinks();
  // A process that dies gives its memory back before its link closes: the cause may come later than the failed copy.
  if (absl::IsNotFound(copied)) {  // ESRCH
    health_.SuspectDeath(peer, absl::StrCat("its memory cannot be read: ", copied.message()), NanosIn(kAfterError));
  } else if (!copied.ok()) {
    const absl::Status cause = absl::UnavailableError(
        absl::StrCat("rank ", peer, " counts as lost, because rank ", rank_,
                     " cannot read its memory, as it could when the ranks met: ", copied.message()));
    health_.Suspect(peer, cause, NanosIn(kAfterError));
  }
  return copied.ok() && !health_.lost(peer) && !news_[static_cast<std::size_t>(peer)].link_ended;
}

void UcxTransport::EndRead(const Read& read, const absl::Status& copied) {
  Completion* const completion = read.operation->completion;
  const Rank peer = read.operation->peer;
  if (HasRead(peer, copied)) {
    TellTaken(read.operation, read.number, absl::OkStatus());
  } else {
    held_.push_back({completion, peer});  // ends with the cause of the peer's end, once the cause is known
    Release(read.operation);
  }
}

void UcxTransport::EndReads(absl::FunctionRef<bool(const Operation&)> ends,
                            absl::FunctionRef<absl::Status(const Operation&)> why) {
  std::erase_if(reads_, [&](const Read& read) {
    if (!ends(*read.operation)) return false;
    TellTaken(read.operation, read.number, why(*read.operation));
    return true;
  });
}

void UcxTransport::EndUntaken(absl::FunctionRef<bool(const Operation&)> ends, const absl::Status& why) {
  for (Operation& operation : operations_) {
    const bool is_untaken = operation.wired ? !operation.receives : operation.announced && operation.sent;
    if (operation.completion == nullptr || !is_untaken || !ends(operation)) continue;
    Finish(operation, why);
  }
}

void UcxTransport::TellTaken(Operation* receive, std::uint32_t number, absl::Status result) {
  Control taken;
  taken.kind = Control::Kind::kTaken;
  taken.from = rank_;
  taken.message = number;
  SendControl(endpoints_[static_cast<std::size_t>(receive->peer)], taken, receive, std::move(result));
}

void UcxTransport::HearTaken(Rank from, std::uint32_t number) {
  if (number >= operations_.size()) return;
  Operation& operation = operations_[number];
  const bool awaits = operation.completion != nullptr && operation.announced;
  if (awaits && operation.peer == from) Taken(operation);
}

void UcxTransport::Taken(Operation& operation) {
  operation.taken = true;
  if (!operation.sent) return;  // SendEnded ends the send
  Finish(operation, absl::OkStatus());
}

}  // namespace tutti::ucx
