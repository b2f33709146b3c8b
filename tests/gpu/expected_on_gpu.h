// What a collective on a GPU may give: exactly what it promises, but for sums of NCCL in floating types.
#ifndef TESTS_GPU_EXPECTED_ON_GPU_H_
#define TESTS_GPU_EXPECTED_ON_GPU_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tests/gpu/rank_check.h"
#include "tutti/collective.h"
#include "tutti/schedule.h"

namespace tutti::gpu {

// The memory of one call in which the elements of tests/harness/expected_results.h are given and compared. Of an
// in-place call, input and output are one memory, in which the shorter is a block of the longer.
struct CallMemory {
  std::int64_t bytes = 0;             // of the input's memory, and as many of the output's
  std::int64_t in_at = 0;             // where the input begins
  std::int64_t out_at = 0;            // where the output begins
  std::vector<std::byte> input = {};  // the input's memory before the call
};
CallMemory MemoryOf(const CollectiveSpec& spec, Rank rank, int size);

// Twice the distance between 1 and the next number of a floating type.
double EpsilonOf(DType dtype);

// Compares `out`, the output of `rank` in a call of `count` elements (as SpecOf takes it). `by_nccl`: NCCL may have
// reduced; it may add floating elements in any order, round after each addition, and scale before it
// (docs/decisions/0030-native-steps.md).
absl::Status CompareOutput(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, bool by_nccl,
                           const void* out);

// A call on the memory of the rank's GPU by `schedule` (null: the selector's), checked element by element.
// Unimplemented when the schedule does not serve the call, which is so on all ranks.
absl::Status CheckCall(CheckedRank& rank, const Schedule* schedule, const CollectiveSpec& base, std::int64_t count);

// OK when `bytes` are the same on all ranks; every rank calls it, and it uses memory of the host.
absl::Status CheckEqualOnAllRanks(CheckedRank& rank, const std::vector<std::byte>& bytes);

}  // namespace tutti::gpu

#endif  // TESTS_GPU_EXPECTED_ON_GPU_H_
