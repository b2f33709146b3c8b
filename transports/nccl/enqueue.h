// One call, given to NCCL.
#ifndef TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_
#define TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_

#include "transports/nccl/library.h"
#include "tutti/native_transport.h"

namespace tutti::nccl {

// Adds `call`, which has been checked, to NCCL's open group. Collectives that the loaded NCCL lacks become sends and
// receives of this group.
Result EnqueueOne(const Library& nccl, Comm comm, Rank rank, int size, const NativeCall& call, CUstream_st* stream);

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_ENQUEUE_H_
