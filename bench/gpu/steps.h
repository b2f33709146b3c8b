// The time of the exchange of a training step between two processes, by strategies that send fewer and fewer bytes.
#ifndef BENCH_GPU_STEPS_H_
#define BENCH_GPU_STEPS_H_

#include <string>

#include "absl/status/status.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {

// Notes figures in milliseconds: a bucket of 64 MB of f32 by gradient_allreduce as it is, in bf16, and by bytegrad.
// The strategies take turns. `link` becomes part of the names of the figures: "1gbit", or "unshaped".
absl::Status MeasureSteps(CheckedRank& rank, const std::string& link);

}  // namespace tutti::gpu

#endif  // BENCH_GPU_STEPS_H_
