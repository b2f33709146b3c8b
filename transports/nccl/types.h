// Tutti's element types and operators as NCCL's.
#ifndef TUTTI_TRANSPORTS_NCCL_TYPES_H_
#define TUTTI_TRANSPORTS_NCCL_TYPES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "transports/nccl/library.h"
#include "tutti/collective.h"
#include "tutti/dtype.h"

namespace tutti::nccl {

// How NCCL sees Tutti's elements: those with which NCCL computes have its type, all others are bytes that it moves.
struct Elements {
  DataType type = DataType::kInt8;
  std::int64_t per_element = 1;  // elements of `type` for each of Tutti's
};

// OK, or Unimplemented that says why NCCL cannot perform the call, or not with the results that Tutti promises.
absl::Status CheckSupported(Collective collective, DType dtype, ReduceOp op);

// The elements of a call that CheckSupported has passed.
Elements ElementsOf(DType dtype);
// The operator of such a call, but for kPremulSum, which a communicator creates with each factor.
RedOp OperatorOf(ReduceOp op);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_TYPES_H_
