// The reduction operators of torch as those of Tutti.
#ifndef TUTTI_TORCH_PROCESS_GROUP_REDUCE_OP_H_
#define TUTTI_TORCH_PROCESS_GROUP_REDUCE_OP_H_

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "tutti/call_options.h"
#include "tutti/dtype.h"

namespace tutti::dist {

// The operator of a call; the factor of PREMUL_SUM goes to `options`. Throws when torch adds an operator that Tutti
// does not know; whether the tensor's type has the operator is checked by the core.
ReduceOp ReduceOpOf(const char* call, const ::c10d::ReduceOp& op, CallOptions& options);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_REDUCE_OP_H_
