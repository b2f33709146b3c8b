// Tensors in the arena: the memory of this rank that the ranks of its node map, where collectives need no copies.
#ifndef TUTTI_TORCH_PROCESS_GROUP_MEMORY_H_
#define TUTTI_TORCH_PROCESS_GROUP_MEMORY_H_

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "tutti/communicator.h"

namespace tutti::dist {

// A dense tensor on the CPU in the arena of `communicator`; contents undefined. The tensor may outlive the
// communicator, and any thread may let it go. Throws as ThrowIfError does: DistBackendError when the arena is full says
// how large a piece is free.
//
// Memory of the arena is shared between processes: a forked child that writes to the tensor writes to the parent's.
at::Tensor EmptyInArena(Communicator& communicator, at::IntArrayRef sizes, at::ScalarType type);

// Moves the elements of the storage of `tensor` into the arena, for all tensors on that storage, unless they lie there.
// Nobody may hold a raw pointer to the elements. Nothing is changed when the arena has no room, or when the storage is
// not memory of torch's own allocator for the CPU.
void MoveToArena(Communicator& communicator, const at::Tensor& tensor);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_MEMORY_H_
