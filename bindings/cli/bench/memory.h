// The buffers of a benchmark: as large as its largest call, in the arena, in ordinary memory or on a GPU.
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

  Buffer buffer_;
  std::unique_ptr<std::byte, Free> private_;
  std::byte* start_ = nullptr;
  std::int64_t second_ = 0;  // bytes from the start to the output of calls that are not in place
  bool on_device_ = false;
  std::vector<std::byte> staging_;  // what the host writes and reads of the memory of a GPU
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_
