// The host memory that the runs of one call use: the caller's buffers, staging where peers cannot reach those, scratch.
#ifndef TUTTI_ENGINE_HOST_MEMORY_H_
#define TUTTI_ENGINE_HOST_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/lent_memory.h"
#include "engine/past_cache_choice.h"
#include "engine/program.h"
#include "tutti/buffer.h"

namespace tutti {

class Arena;
class Transport;

class HostMemory {
 public:
  // `transport` outlives this object. `scratch`: memory that the caller lends for the program's scratch, used unless
  // peers map it; null: none.
  HostMemory(const Program& program, Arena& arena, const Transport& transport, void* scratch);

  // Names the caller's buffers in `bases`, or the staging that stands for them: memory outside the arena is staged when
  // peers must reach it, unless there is a Program::for_private_buffers. Allocates staging and scratch.
  // ResourceExhausted when the arena has no room.
  absl::Status SetBuffers(const void* in, void* out, void* state, std::vector<std::byte*>& bases);
  // Whether peers should map the caller's buffers and cannot, and the buffers are not staged whole for that.
  bool private_buffers() const { return private_buffers_; }
  // Allocates what Program::for_private_buffers needs, also where only another rank's buffers are private.
  // ResourceExhausted when the arena has no room.
  absl::Status MakeRoomForPrivateBuffers();
  // CopyIn copies the caller's buffers into staging, as `past_cache` says; CopyOut copies staging back. Both return the
  // number of bytes copied.
  std::int64_t CopyIn(PastCacheChoice& past_cache);
  std::int64_t CopyOut();

  // The scratch that belongs to this call or its caller; null: there is none, or it is the lane's.
  std::byte* scratch() const;
  // Whether peers may read scratch that belongs to this call, also after a run has ended here.
  bool lends_scratch() const { return program_.uses_lane && shared_scratch_.data() != nullptr; }
  // Whether peers write into staging instead of the caller's output.
  bool stages_output() const { return staging_out_.data() != nullptr; }
  std::int64_t held_bytes() const;

  // Hands what peers may still read over to `lent`: scratch until the borrowers have completed `run` of `lane` (-1: no
  // run has used it), or, after a failure, everything until they have closed the channel.
  void GiveBack(LentMemory& lent, std::shared_ptr<const Borrowers> borrowers, int lane, std::uint64_t run);
  void GiveBackAfterFailure(LentMemory& lent, std::shared_ptr<const Borrowers> borrowers);

 private:
  absl::Status PlaceBuffers(const void* in, void* out, void* state, std::vector<std::byte*>& bases);
  // Stages what peers copy from, where they cannot read it in this process.
  absl::Status PlaceForReaders(std::vector<std::byte*>& bases);
  absl::Status AllocateScratch(std::int64_t bytes);
  // Sets `base` to `memory` of `bytes`, or to `staging` where peers cannot reach `memory`.
  absl::Status Place(const void* memory, std::int64_t bytes, Buffer& staging, std::byte*& base);

  const Program& program_;
  Arena& arena_;
  const Transport& transport_;
  std::byte* const callers_scratch_;
  const void* in_ = nullptr;
  void* out_ = nullptr;
  bool buffers_set_ = false;  // the last SetBuffers succeeded: the same buffers again change nothing
  bool private_buffers_ = false;
  Buffer staging_in_;
  Buffer staging_out_;
  Buffer shared_scratch_;                     // scratch in the arena
  std::unique_ptr<std::byte[]> own_scratch_;  // scratch that no peer maps, where the arena had no room
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_HOST_MEMORY_H_
