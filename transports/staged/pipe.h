// The messages from one rank to another, of which one end is this rank: cut into segments, which pass through slots of
// pinned memory one after the other.
#ifndef TUTTI_TRANSPORTS_STAGED_PIPE_H_
#define TUTTI_TRANSPORTS_STAGED_PIPE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/status/status.h"
#include "memory/cuda_runtime.h"
#include "tutti/transport.h"

namespace tutti::staged {

// Bytes of a segment in a group of `size` ranks; equal on all of them, because both ends of a message cut it.
std::int64_t SegmentBytes(int size);

// The parts of a native transport that a pipe uses.
struct PipeEnds {
  const CudaRuntime* cuda = nullptr;
  CUstream_st* stream = nullptr;  // for the copies of the pipe
  Endpoint* endpoint = nullptr;
  std::uint32_t number = 0;  // that the receiver has given the messages
  std::int64_t segment_bytes = 0;
};

// Segments begin, move on and end in order. No pipe waits for another one, so that the ranks of a circle, each of which
// sends to the next, cannot take the slots from each other.
class Pipe {
 public:
  Pipe(const PipeEnds& ends, bool sends) : ends_(ends), sends_(sends) {}
  // No message is with the transport, and no copy under way.
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // Allocates the slots, unless they are there.
  absl::Status MakeRoom();
  // Queues a message of `bytes` (> 0) from or to `memory`, of the device.
  void Add(std::byte* memory, std::int64_t bytes);
  // Takes every step that can be taken now.
  absl::Status Advance();
  // Whether all segments have been taken by the peer, or their copies to the device are enqueued.
  bool done() const { return queue_.empty() && moved_ == begun_ && (!sends_ || under_way_ == 0); }
  // Segments that are with the transport.
  int under_way() const { return under_way_; }

 private:
  // Several segments at a time, so that the copies of some hide behind the messages of others.
  static constexpr std::size_t kSlots = 4;

  enum class Stage : std::uint8_t {
    kFree,
    kCopying,   // between slot and device
    kUnderWay,  // with the transport
    kArrived,   // of a receive: the message is in the slot
  };
  struct Slot : Completion {
    Pipe* pipe = nullptr;
    Stage stage = Stage::kFree;
    std::byte* staging = nullptr;
    CUevent_st* copied = nullptr;
    // Of the segment:
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    std::uint64_t tag = 0;
  };
  struct Message {
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    std::uint64_t number = 0;  // among those of the pipe
    std::int64_t begun = 0;    // bytes whose segments have begun
  };

  Slot& SlotOf(std::uint64_t segment) { return slots_[segment % kSlots]; }
  // Gives `slot` the next segment of the queue.
  void TakeNext(Slot& slot);
  absl::Status BeginSends();
  absl::Status PassOnCopied();
  absl::Status BeginRecvs();
  absl::Status CopyArrived();
  absl::Status Copy(Slot& slot);
  // Sets `*copied` to whether the copy of `slot` has ended.
  absl::Status HasCopied(const Slot& slot, bool* copied) const;
  static void OnMessage(Completion* completion, const absl::Status& status);

  const PipeEnds ends_;
  const bool sends_;
  std::byte* pinned_ = nullptr;
  std::array<Slot, kSlots> slots_;
  std::deque<Message> queue_;
  std::uint64_t messages_ = 0;  // that were queued
  std::uint64_t begun_ = 0;     // segments that were given a slot
  std::uint64_t moved_ = 0;     // segments that were passed on: to the transport, or to the device
  int under_way_ = 0;
  absl::Status error_;  // the first error of a message
};

}  // namespace tutti::staged

#endif  // TUTTI_TRANSPORTS_STAGED_PIPE_H_
