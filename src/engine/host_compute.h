// The steps that compute: which kernel or codec carries out an instruction on the host.
#ifndef TUTTI_ENGINE_HOST_COMPUTE_H_
#define TUTTI_ENGINE_HOST_COMPUTE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/program.h"

namespace tutti {

// Carries out `instruction` of `program` on its operands' memory. `draw` names the random numbers of a codec that
// rounds at random; `factor` is that of the call. DataLoss when a codec refuses the bytes that it is to decode.
absl::Status Compute(const Program& program, const Instruction& instruction, absl::Span<void* const> dsts,
                     absl::Span<const void* const> srcs, std::uint64_t draw, double factor);

}  // namespace tutti

#endif  // TUTTI_ENGINE_HOST_COMPUTE_H_
