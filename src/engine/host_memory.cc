#include "engine/host_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/control_block.h"
#include "kernels/reduce.h"
#include "memory/arena.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

// Copies like memcpy, but fast at any distance between the two buffers: see CopyBytes in kernels/convert.cc.
void CopyBytes(void* dst, const void* src, std::int64_t bytes) {
  kernels::Convert(DType::kU8, dst, DType::kU8, src, bytes, kernels::Stores::kCached);
}

// Copies `bytes` bytes of `buffer` to `staging`, which peers read; returns `bytes`.
std::int64_t Stage(PastCacheChoice& past_cache, Buffer& staging, const void* buffer, std::int64_t bytes) {
  past_cache.Convert(DType::kU8, staging.data(), DType::kU8, buffer, bytes);
  return bytes;
}

}  // namespace

HostMemory::HostMemory(const Program& program, Arena& arena, const Transport& transport, void* scratch)
    : program_(program),
      arena_(arena),
      transport_(transport),
      callers_scratch_(program.uses_lane ? nullptr : static_cast<std::byte*>(scratch)) {}

absl::Status HostMemory::AllocateScratch(std::int64_t bytes) {
  const bool fits_lane = program_.uses_lane && bytes <= kLaneScratchBytes - program_.counts_bytes;
  if (bytes == 0 || fits_lane || scratch() != nullptr) return absl::OkStatus();
  if (program_.for_private_buffers != nullptr) {  // one buffer serves both programs
    bytes = std::max(bytes, program_.for_private_buffers->plan.scratch_bytes);
  }
  absl::StatusOr<Buffer> buffer = arena_.Allocate(bytes);
  if (buffer.ok()) {
    shared_scratch_ = *std::move(buffer);
    return absl::OkStatus();
  }
  if (program_.uses_lane) return buffer.status();
  own_scratch_.reset(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
  return own_scratch_ != nullptr ? absl::OkStatus() : buffer.status();
}

absl::Status HostMemory::Place(const void* memory, std::int64_t bytes, Buffer& staging, std::byte*& base) {
  if (bytes == 0 || arena_.Contains(memory)) {
    staging = Buffer();
    return absl::OkStatus();
  }
  if (staging.data() == nullptr) {
    absl::StatusOr<Buffer> buffer = arena_.Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    staging = *std::move(buffer);
  }
  base = staging.data();
  return absl::OkStatus();
}

absl::Status HostMemory::SetBuffers(const void* in, void* out, void* state, std::vector<std::byte*>& bases) {
  const bool same = in == in_ && out == out_ && state == bases[static_cast<std::size_t>(Space::kState)];
  // Memory that peers cannot read may have come to an address from which they read in an earlier run.
  const bool is_read = private_buffers_ && program_.for_private_buffers->reads_processes;
  if (std::exchange(buffers_set_, false) && same && !is_read && !arena_.has_withdrawn()) {
    buffers_set_ = true;
    return absl::OkStatus();
  }
  absl::Status status = PlaceBuffers(in, out, state, bases);
  buffers_set_ = status.ok();
  return status;
}

absl::Status HostMemory::PlaceBuffers(const void* in, void* out, void* state, std::vector<std::byte*>& bases) {
  if (absl::Status status = AllocateScratch(program_.plan.scratch_bytes); !status.ok()) return status;
  std::byte*& in_base = bases[static_cast<std::size_t>(Space::kIn)];
  std::byte*& out_base = bases[static_cast<std::size_t>(Space::kOut)];
  in_ = in;
  out_ = out;
  // kIn is never written: the cast only serves the common table of bases.
  in_base = static_cast<std::byte*>(const_cast<void*>(in));
  out_base = static_cast<std::byte*>(out);
  bases[static_cast<std::size_t>(Space::kState)] = static_cast<std::byte*>(state);
  if (!program_.shares_io) return absl::OkStatus();
  const Plan& plan = program_.plan;
  if (program_.for_private_buffers != nullptr) {
    staging_in_ = Buffer();  // of other buffers, in an earlier run of the call
    staging_out_ = Buffer();
    private_buffers_ = (plan.in_bytes > 0 && !arena_.Contains(in)) || (plan.out_bytes > 0 && !arena_.Contains(out));
    if (!private_buffers_) return absl::OkStatus();
    return program_.for_private_buffers->reads_processes ? PlaceForReaders(bases) : MakeRoomForPrivateBuffers();
  }
  if (absl::Status status = Place(in, plan.in_bytes, staging_in_, in_base); !status.ok()) return status;
  return Place(out, plan.out_bytes, staging_out_, out_base);
}

absl::Status HostMemory::PlaceForReaders(std::vector<std::byte*>& bases) {
  const Plan& plan = program_.plan;
  // A rank in place has only an output, from which peers copy.
  const bool has_in = plan.in_bytes > 0;
  const void* const memory = has_in ? in_ : out_;
  const std::int64_t bytes = has_in ? plan.in_bytes : plan.out_bytes;
  Buffer& staging = has_in ? staging_in_ : staging_out_;
  const bool keeps_all = plan.spec.collective == Collective::kGather && plan.rank == plan.spec.root;
  const bool is_read = !keeps_all && InputCount(plan.spec, plan.rank, plan.size) > 0;
  if (!is_read || arena_.Contains(memory) || transport_.ShowsToPeers(memory, bytes)) return absl::OkStatus();
  return Place(memory, bytes, staging, bases[static_cast<std::size_t>(has_in ? Space::kIn : Space::kOut)]);
}

absl::Status HostMemory::MakeRoomForPrivateBuffers() {
  return AllocateScratch(program_.for_private_buffers->plan.scratch_bytes);
}

std::int64_t HostMemory::CopyIn(PastCacheChoice& past_cache) {
  const Plan& plan = program_.plan;
  std::int64_t copied = 0;
  if (staging_in_.data() != nullptr) copied += Stage(past_cache, staging_in_, in_, plan.in_bytes);
  // In place the output is the input too, and bytes that the call does not write must come back as they were. Out of
  // place nothing is copied in, because a plan that keeps its promise writes every byte of the output.
  if (staging_out_.data() != nullptr && plan.spec.in_place) {
    copied += Stage(past_cache, staging_out_, out_, plan.out_bytes);
  }
  return copied;
}

std::int64_t HostMemory::CopyOut() {
  if (staging_out_.data() == nullptr) return 0;
  const std::int64_t bytes = program_.plan.out_bytes;
  CopyBytes(out_, staging_out_.data(), bytes);
  return bytes;
}

std::byte* HostMemory::scratch() const {
  if (callers_scratch_ != nullptr) return callers_scratch_;
  return own_scratch_ != nullptr ? own_scratch_.get() : shared_scratch_.data();
}

std::int64_t HostMemory::held_bytes() const {
  return shared_scratch_.bytes() + staging_in_.bytes() + staging_out_.bytes() +
         (own_scratch_ != nullptr ? program_.plan.scratch_bytes : 0);
}

void HostMemory::GiveBack(LentMemory& lent, std::shared_ptr<const Borrowers> borrowers, int lane, std::uint64_t run) {
  if (lane >= 0) lent.Keep(std::move(shared_scratch_), std::move(borrowers), lane, run);
}

void HostMemory::GiveBackAfterFailure(LentMemory& lent, std::shared_ptr<const Borrowers> borrowers) {
  for (Buffer* const buffer : {&shared_scratch_, &staging_in_, &staging_out_}) {
    lent.KeepUntilClosed(std::move(*buffer), borrowers);
  }
}

}  // namespace tutti
