// The buffers of a benchmark: as large as its largest call, in the arena, in ordinary memory or on a GPU. Those in
// ordinary memory are on large pages, if the kernel has them, in calls whose Traffic::bytes is that of a large page or
// more, as are those of the other libraries (bench/peers/mpi_collectives.c): only what peers can do with the memory is
// to differ.
#ifndef TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_
#define TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/cli/bench/options.h"
#include "bindings/cli/traffic.h"
#include "tutti/communicator.h"

namespace tutti::cli {

class BenchMemory {
 public:
  // Room for a call of `largest`.
  static absl::StatusOr<BenchMemory> Allocate(Communicator& communicator, const BenchOptions& options,
                                              const Traffic& largest);

  // Where the input and output of a call start.
  std::byte* input(const Traffic& traffic) const;
  std::byte* output(const Traffic& traffic) const;

  // Lets the host write `bytes` bytes that begin at `to`, all of them.
  absl::Status Write(std::byte* to, std::int64_t bytes, const std::function<void(std::byte*)>& write);
  // Lets the host read `bytes` bytes that begin at `from`.
  absl::Status Read(const std::byte* from, std::int64_t bytes, const std::function<void(const std::byte*)>& read);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  using Private = std::unique_ptr<std::byte, Free>;
  struct Block {
    std::byte* start = nullptr;  // null: there is no such block
    std::int64_t second = 0;     // bytes from the start to the output of calls that are not in place
    std::int64_t bytes = 0;
  };

  // A block without memory for calls of `largest`, of whose buffers no more than `most` bytes each are used.
  static Block BlockFor(const Traffic& largest, std::int64_t most);
  // Gives `block` ordinary memory, and returns its owner.
  static absl::StatusOr<Private> GivePrivate(Block& block, bool on_large_pages);
  // The block in which the buffers of the call lie.
  const Block& BlockOf(const Traffic& traffic) const;
  // Takes the page faults of `block` now, not in the first call.
  absl::Status Clear(const Block& block);

  Buffer buffer_;
  Private private_;
  Private on_small_pages_;
  Block block_;
  Block short_block_;  // for calls of less than a large page, where others have large pages
  bool on_device_ = false;
  std::vector<std::byte> staging_;  // what the host writes and reads of the memory of a GPU
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_
