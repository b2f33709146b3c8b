#include "bindings/cli/bench_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kAlignment = 4096;  // equal to that of bench/peers/mpi_collectives.c

std::int64_t RoundUp(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void BenchMemory::Free::operator()(void* memory) const { std::free(memory); }

absl::StatusOr<BenchMemory> BenchMemory::Allocate(Communicator& communicator, const BenchOptions& options,
                                                  const Traffic& largest) {
  const std::int64_t element = SizeOf(largest.spec.dtype);
  BenchMemory memory;
  std::int64_t bytes = 0;
  if (largest.spec.in_place) {
    bytes = RoundUp(largest.in_place_count() * element);
  } else {
    memory.second_ = RoundUp(largest.input_count() * element);
    bytes = memory.second_ + RoundUp(largest.output_count() * element);
  }
  bytes = std::max(bytes, kAlignment);
  if (options.buffers == "arena") {
    absl::StatusOr<Buffer> buffer = communicator.Allocate(bytes);
    if (!buffer.ok()) return buffer.status();
    memory.arena_ = *std::move(buffer);
    memory.start_ = memory.arena_.data();
  } else {
    memory.private_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(bytes))));
    if (memory.private_ == nullptr)
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
    memory.start_ = memory.private_.get();
  }
  std::memset(memory.start_, 0, static_cast<std::size_t>(bytes));  // takes the page faults now, not in the first call
  return memory;
}

std::byte* BenchMemory::input(const Traffic& traffic) const {
  return start_ + (traffic.spec.in_place ? traffic.in_place_input() * SizeOf(traffic.spec.dtype) : 0);
}

std::byte* BenchMemory::output(const Traffic& traffic) const {
  return start_ + (traffic.spec.in_place ? traffic.in_place_output() * SizeOf(traffic.spec.dtype) : second_);
}

}  // namespace tutti::cli
