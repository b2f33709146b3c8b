// The time of the host that a call on a GPU takes, beside NCCL's own call.
#ifndef BENCH_GPU_HOST_TIME_H_
#define BENCH_GPU_HOST_TIME_H_

#include "absl/status/status.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

// Notes figures in microseconds: an all_reduce of 1 KB by Tutti, with and without WaitOnStream, bound, and by NCCL
// alone, with and without the two events that let other streams wait. The calls take turns, so that all of them meet
// the same machine.
absl::Status MeasureHostTime(CheckedRank& rank);

}  // namespace tutti::gpu

#endif  // BENCH_GPU_HOST_TIME_H_
