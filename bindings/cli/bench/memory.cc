#include "bindings/cli/bench/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tutti/devices.h"
#include "tutti/rounding.h"

namespace tutti::cli {
namespace {

// Equal to those of bench/peers/mpi_collectives.c.
constexpr std::int64_t kAlignment = 4096;
constexpr std::int64_t kLargePage = 2 << 20;

}  // namespace

void BenchMemory::Free::operator()(void* memory) const { std::free(memory); }

BenchMemory::Block BenchMemory::BlockFor(const Traffic& largest, std::int64_t most) {
  const auto aligned = [&](std::int64_t elements) {
    return RoundUp(std::min(elements * SizeOf(largest.spec.dtype), most), kAlignment);
  };
  Block block;
  if (largest.spec.in_place) {
    block.bytes = aligned(largest.in_place_count());
  } else {
    block.second = aligned(largest.input_count());
    block.bytes = block.second + aligned(largest.output_count());
  }
  block.bytes = std::max(block.bytes, kAlignment);
  return block;
}

absl::StatusOr<BenchMemory::Private> BenchMemory::GivePrivate(Block& block, bool on_large_pages) {
  const std::int64_t alignment = on_large_pages ? kLargePage : kAlignment;
  const auto whole = static_cast<std::size_t>(RoundUp(block.bytes, alignment));
  block.start = static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(alignment), whole));
  if (block.start == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", block.bytes, " bytes"));
  }
  if (on_large_pages) (void)::madvise(block.start, whole, MADV_HUGEPAGE);
  return Private(block.start);
}

absl::Status BenchMemory::Clear(const Block& block) {
  if (block.start == nullptr) return absl::OkStatus();
  return Write(block.start, block.bytes,
               [&](std::byte* here) { std::memset(here, 0, static_cast<std::size_t>(block.bytes)); });
}

absl::StatusOr<BenchMemory> BenchMemory::Allocate(Communicator& communicator, const BenchOptions& options,
                                                  const Traffic& largest) {
  BenchMemory memory;
  memory.block_ = BlockFor(largest, std::numeric_limits<std::int64_t>::max());
  memory.on_device_ = options.on_device();
  if (memory.on_device_ || options.buffers == "arena") {
    absl::StatusOr<Buffer> buffer = communicator.Allocate(memory.block_.bytes, options.memory_kind());
    if (!buffer.ok()) return buffer.status();
    memory.buffer_ = *std::move(buffer);
    memory.block_.start = memory.buffer_.data();
  } else {
    const bool on_large_pages = largest.bytes() >= kLargePage;
    absl::StatusOr<Private> owner = GivePrivate(memory.block_, on_large_pages);
    if (!owner.ok()) return owner.status();
    memory.private_ = *std::move(owner);
    if (on_large_pages && options.min_bytes < kLargePage) {
      memory.short_block_ = BlockFor(largest, kLargePage);
      owner = GivePrivate(memory.short_block_, /*on_large_pages=*/false);
      if (!owner.ok()) return owner.status();
      memory.on_small_pages_ = *std::move(owner);
    }
  }
  if (absl::Status cleared = memory.Clear(memory.block_); !cleared.ok()) return cleared;
  if (absl::Status cleared = memory.Clear(memory.short_block_); !cleared.ok()) return cleared;
  return memory;
}

const BenchMemory::Block& BenchMemory::BlockOf(const Traffic& traffic) const {
  return short_block_.start != nullptr && traffic.bytes() < kLargePage ? short_block_ : block_;
}

std::byte* BenchMemory::input(const Traffic& traffic) const {
  std::byte* const start = BlockOf(traffic).start;
  if (traffic.input_count() == 0) return start;  // and not the end, which is memory of nobody knows which kind
  return start + (traffic.spec.in_place ? traffic.in_place_input() * SizeOf(traffic.spec.dtype) : 0);
}

std::byte* BenchMemory::output(const Traffic& traffic) const {
  const Block& block = BlockOf(traffic);
  if (traffic.output_count() == 0) return block.start;
  return block.start + (traffic.spec.in_place ? traffic.in_place_output() * SizeOf(traffic.spec.dtype) : block.second);
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
