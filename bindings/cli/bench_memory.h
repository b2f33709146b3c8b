// The buffers of a benchmark: as large as its largest call, in the arena or ordinary memory.
#ifndef TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_
#define TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bindings/cli/bench_options.h"
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

 private:
  struct Free {
    void operator()(void* memory) const;
  };

  Buffer arena_;
  std::unique_ptr<std::byte, Free> private_;
  std::byte* start_ = nullptr;
  std::int64_t second_ = 0;  // bytes from the start to the output of calls that are not in place
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_MEMORY_H_
