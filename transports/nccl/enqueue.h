// Calls, given to NCCL.
#ifndef TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_
#define TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_

#include <cstddef>

#include "absl/types/span.h"
#include "transports/nccl/library.h"
#include "tutti/native_transport.h"

namespace tutti::nccl {

// Adds `call`, which has been checked, to NCCL's open group. Collectives that the loaded NCCL lacks become sends and
// receives of this group.
Result EnqueueOne(const Library& nccl, Comm comm, Rank rank, int size, const NativeCall& call, CUstream_st* stream);

// How NCCL has taken a group of calls.
struct GroupEnd {
  Result result = Result::kSuccess;
  std::size_t begun = 0;  // calls that were added, up to the one with the error, if it was one of them
};

// Gives `calls` to NCCL as one group.
GroupEnd EnqueueGroup(const Library& nccl, Comm comm, Rank rank, int size, absl::Span<const NativeCall> calls,
                      CUstream_st* stream);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_
