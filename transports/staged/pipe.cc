#include "transports/staged/pipe.h"

#include <algorithm>

#include "tutti/codecs/random.h"

namespace tutti::staged {
namespace {

// Pinned memory of all pipes of a rank in a group: aimed at, and exceeded where segments would become too short.
constexpr std::int64_t kMaxPinned = 32 << 20;
constexpr std::int64_t kLongestSegment = 512 << 10;
constexpr std::int64_t kShortestSegment = 16 << 10;
constexpr std::int64_t kPage = 4096;

// The tag of a segment: number of the receiver (19 bits) · hash of the message's length (8) · message of the pipe (9) ·
// whether the segment is the last (1) · segment of the message (11). Messages of a pipe come in one order at both ends.
// Where the ends differ in the length of a message, the hashes most often differ, and no segment finds its receive.
// Where the hashes are equal, the last segment of the shorter end meets no other segment, by the bit, or one of another
// length, which is an error. So the deadline, or that error, says who waits for whom, and no receive ends OK with the
// beginning of a longer message.
std::uint64_t TagOf(std::uint32_t receiver, std::int64_t bytes, std::uint64_t message, std::int64_t segment,
                    bool last) {
  static_assert(8 + 9 + 1 + 11 == kGroupShift);
  const std::uint64_t hash = static_cast<std::uint64_t>(bytes) * kernels::kGoldenRatio64 >> 56;
  return std::uint64_t{receiver} << kGroupShift | hash << 21 | (message & 0x1ff) << 12 | std::uint64_t{last} << 11 |
         (static_cast<std::uint64_t>(segment) & 0x7ff);
}

}  // namespace

std::int64_t SegmentBytes(int size) {
  constexpr std::int64_t kSlotsOfPeer = 8;  // of both pipes
  const std::int64_t share = kMaxPinned / (kSlotsOfPeer * std::max(size - 1, 1));
  return std::clamp(share / kPage * kPage, kShortestSegment, kLongestSegment);
}

Pipe::~Pipe() {
  for (const Slot& slot : slots_) {
    if (slot.copied != nullptr) ends_.cuda->destroy_event(slot.copied);
  }
  if (pinned_ != nullptr) ends_.cuda->free_pinned(pinned_);
}

absl::Status Pipe::MakeRoom() {
  if (pinned_ == nullptr) {
    void* pinned = nullptr;
    const CudaError error =
        ends_.cuda->allocate_pinned(&pinned, kSlots * static_cast<std::size_t>(ends_.segment_bytes));
    if (error != kCudaSuccess) return CudaStatus(*ends_.cuda, error, "pinned memory for messages of a GPU");
    pinned_ = static_cast<std::byte*>(pinned);
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_[i];
    if (slot.copied != nullptr) continue;
    if (const CudaError error = ends_.cuda->create_event(&slot.copied); error != kCudaSuccess) {
      return CudaStatus(*ends_.cuda, error, "an event for messages of a GPU");
    }
    slot.done = &Pipe::OnMessage;
    slot.pipe = this;
    slot.staging = pinned_ + static_cast<std::int64_t>(i) * ends_.segment_bytes;
  }
  return absl::OkStatus();
}

void Pipe::Add(std::byte* memory, std::int64_t bytes) {
  queue_.push_back({.memory = memory, .bytes = bytes, .number = messages_++});
}

absl::Status Pipe::Advance() {
  if (!error_.ok()) return error_;
  absl::Status status = sends_ ? BeginSends() : CopyArrived();
  if (status.ok()) status = sends_ ? PassOnCopied() : BeginRecvs();
  return status;
}

void Pipe::TakeNext(Slot& slot) {
  Message& message = queue_.front();
  slot.memory = message.memory + message.begun;
  slot.bytes = std::min(ends_.segment_bytes, message.bytes - message.begun);
  const bool last = message.begun + slot.bytes == message.bytes;
  slot.tag = TagOf(ends_.number, message.bytes, message.number, message.begun / ends_.segment_bytes, last);
  message.begun += slot.bytes;
  if (last) queue_.pop_front();
  ++begun_;
}

absl::Status Pipe::BeginSends() {
  while (!queue_.empty() && SlotOf(begun_).stage == Stage::kFree) {
    Slot& slot = SlotOf(begun_);
    TakeNext(slot);
    if (absl::Status status = Copy(slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Pipe::PassOnCopied() {
  for (; moved_ < begun_; ++moved_) {
    Slot& slot = SlotOf(moved_);
    bool copied = false;
    if (absl::Status status = HasCopied(slot, &copied); !status.ok() || !copied) return status;
    slot.stage = Stage::kUnderWay;
    ++under_way_;
    ends_.endpoint->Send(slot.tag, slot.staging, slot.bytes, &slot);
  }
  return absl::OkStatus();
}

absl::Status Pipe::BeginRecvs() {
  while (!queue_.empty()) {
    Slot& slot = SlotOf(begun_);
    if (slot.stage == Stage::kCopying) {
      bool copied = false;
      if (absl::Status status = HasCopied(slot, &copied); !status.ok() || !copied) return status;
      slot.stage = Stage::kFree;
    }
    if (slot.stage != Stage::kFree) return absl::OkStatus();
    TakeNext(slot);
    slot.stage = Stage::kUnderWay;
    ++under_way_;
    ends_.endpoint->Recv(slot.tag, slot.staging, slot.bytes, &slot);
  }
  return absl::OkStatus();
}

absl::Status Pipe::CopyArrived() {
  for (; moved_ < begun_ && SlotOf(moved_).stage == Stage::kArrived; ++moved_) {
    if (absl::Status status = Copy(SlotOf(moved_)); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Pipe::Copy(Slot& slot) {
  const CudaRuntime& cuda = *ends_.cuda;
  std::byte* const to = sends_ ? slot.staging : slot.memory;
  const std::byte* const from = sends_ ? slot.memory : slot.staging;
  slot.stage = Stage::kCopying;
  CudaError error = cuda.copy_async(to, from, static_cast<std::size_t>(slot.bytes), ends_.stream);
  if (error == kCudaSuccess) error = cuda.record_event(slot.copied, ends_.stream);
  return CudaStatus(cuda, error, "the copy of a message of a GPU");
}

absl::Status Pipe::HasCopied(const Slot& slot, bool* copied) const {
  const CudaError error = ends_.cuda->query_event(slot.copied);
  *copied = error == kCudaSuccess;
  return error == kCudaNotReady ? absl::OkStatus() : CudaStatus(*ends_.cuda, error, "the copy of a message of a GPU");
}

void Pipe::OnMessage(Completion* completion, const absl::Status& status) {
  Slot& slot = *static_cast<Slot*>(completion);
  Pipe& pipe = *slot.pipe;
  --pipe.under_way_;
  slot.stage = pipe.sends_ ? Stage::kFree : Stage::kArrived;
  if (pipe.error_.ok()) pipe.error_ = status;
}

}  // namespace tutti::staged
