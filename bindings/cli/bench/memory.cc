#include "bindings/cli/bench/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/devices.h"
#include "tutti/rounding.h"

namespace tutti::cli {
namespace {

// Equal to those of bench/peers/mpi_collectives.c.
constexpr std::int64_t kAlignment = 4096;
constexpr std::int64_t kLargePage = 2 << 20;

std::int64_t Aligned(std::int64_t bytes) { return RoundUp(bytes, kAlignment); }

// Ordinary memory, never touched: where it is large, on large pages if the kernel has them, because the arena's memory
// is on such pages, too, and only what peers can do with the memory is to differ. nullptr where there is none.
std::byte* AllocatePrivate(std::int64_t bytes) {
  const std::int64_t alignment = bytes >= kLargePage ? kLargePage : kAlignment;
  const auto whole = static_cast<std::size_t>(RoundUp(bytes, alignment));
  void* const memory = std::aligned_alloc(static_cast<std::size_t>(alignment), whole);
  if (memory != nullptr && alignment == kLargePage) (void)::madvise(memory, whole, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

void BenchMemory::Free::operator()(void* memory) const { std::free(memory); }

absl::StatusOr<BenchMemory> BenchMemory::Allocate(Communicator& communicator, const BenchOptions& options,
                                                  const Traffic& largest) {
  const std::int64_t element = SizeOf(largest.spec.dtype);
  BenchMemory memory;
  std::int64_t bytes = 0;
  if (largest.spec.in_place) {
    bytes = Aligned(largest.in_place_count() * element);
  } else {
    memory.second_ = Aligned(largest.input_count() * element);
    bytes = memory.second_ + Aligned(largest.output_count() * element);
  }
  bytes = std::max(bytes, kAlignment);
  memory.on_device_ = options.on_device();
  if (memory.on_device_ || options.buffers == "arena") {
    absl::StatusOr<Buffer> buffer = communicator.Allocate(bytes, options.memory_kind());
    if (!buffer.ok()) return buffer.status();
    memory.buffer_ = *std::move(buffer);
    memory.start_ = memory.buffer_.data();
  } else {
    memory.private_.reset(AllocatePrivate(bytes));
    if (memory.private_ == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    memory.start_ = memory.private_.get();
  }
  // Takes the page faults now, not in the first call.
  absl::Status cleared = memory.Write(
      memory.start_, bytes, [bytes](std::byte* here) { std::memset(here, 0, static_cast<std::size_t>(bytes)); });
  if (!cleared.ok()) return cleared;
  return memory;
}

std::byte* BenchMemory::input(const Traffic& traffic) const {
  if (traffic.input_count() == 0) return start_;  // and not the end, which is memory of nobody knows which kind
  return start_ + (traffic.spec.in_place ? traffic.in_place_input() * SizeOf(traffic.spec.dtype) : 0);
}

std::byte* BenchMemory::output(const Traffic& traffic) const {
  if (traffic.output_count() == 0) return start_;
  return start_ + (traffic.spec.in_place ? traffic.in_place_output() * SizeOf(traffic.spec.dtype) : second_);
}

absl::Status BenchMemory::Write(std::byte* to, std::int64_t bytes, const std::function<void(std::byte*)>& write) {
  if (!on_device_) {
    write(to);
    return absl::OkStatus();
  }
  staging_.resize(std::max(staging_.size(), static_cast<std::size_t>(bytes)));
  write(staging_.data());
  return CopyMemory(to, staging_.data(), bytes);
}

absl::Status BenchMemory::Read(const std::byte* from, std::int64_t bytes,
                               const std::function<void(const std::byte*)>& read) {
  if (on_device_) {
    staging_.resize(std::max(staging_.size(), static_cast<std::size_t>(bytes)));
    if (absl::Status copied = CopyMemory(staging_.data(), from, bytes); !copied.ok()) return copied;
  }
  read(on_device_ ? staging_.data() : from);
  return absl::OkStatus();
}

}  // namespace tutti::cli
