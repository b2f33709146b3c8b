// Tensors of a collective call as the core sees them: contiguous memory, a number of elements and their type.
#ifndef TUTTI_TORCH_PROCESS_GROUP_TENSORS_H_
#define TUTTI_TORCH_PROCESS_GROUP_TENSORS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/dtype.h"
#include "tutti/torch/plain.h"

namespace tutti::dist {

using nn::Plain;

// The DType of `type`; nothing where Tutti has none. Elements without a DType can be moved as bytes.
std::optional<DType> DTypeOf(at::ScalarType type);

// Throws unless `tensor` is defined, dense, on the CPU or a GPU, and within its storage. `call` and `argument`
// ("all_reduce", "tensor") name the tensor in the error.
void CheckTensor(const char* call, const char* argument, const at::Tensor& tensor);
// Throws where elements of `tensor`, to which a result is to be written, share memory.
void CheckOutput(const at::Tensor& tensor);
// Throws unless `tensor` is where `like` is, another tensor of the same call.
void CheckDevice(const char* call, const char* argument, const at::Tensor& tensor, const at::Tensor& like);
// CheckTensor and CheckDevice for each, and: all have the element type of `like`.
void CheckTensors(const char* call, const char* argument, at::TensorList tensors, const at::Tensor& like);

// The only tensor of `tensors`, checked; throws when there is not exactly one.
at::Tensor& OnlyTensor(const char* call, const char* argument, std::vector<at::Tensor>& tensors);

// The memory of `tensor` as a tensor of its own, for a step that follows a call: `tensor` may be given other memory
// while the call is under way.
at::Tensor AliasOf(const at::Tensor& tensor);

// Memory for the elements of `tensor`, in order: the tensor itself when it is plain, otherwise new memory.
at::Tensor PlainRoomFor(const at::Tensor& tensor);

// Memory for the elements of all `tensors`, one after the other. The tensors' own memory when the tensors lie there
// like that, otherwise new memory, of one dimension.
at::Tensor RoomForAll(at::TensorList tensors);
// RoomForAll(tensors), which holds the elements of the tensors.
at::Tensor Joined(at::TensorList tensors);
// Copies the elements of `room`, made by RoomForAll(tensors), to the tensors, unless they lie there.
void Distribute(const at::Tensor& room, at::TensorList tensors);

// Writes the elements of `from` over those of `to`: as torch's copy_, but autograd and inference mode do not hear of
// it. The results of collective calls arrive like this.
void CopyQuietly(const at::Tensor& from, const at::Tensor& to);

// Whether the memory of the two contiguous tensors overlaps.
bool Overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_TENSORS_H_
