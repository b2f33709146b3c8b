#include "bindings/torch/process_group/tensors.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

namespace tutti::dist {
namespace {

using nn::IsPlain;

const char* BeginningOf(const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); }

// Whether the elements of `tensors` lie one after the other in the storage of the first of them.
bool LieTogether(at::TensorList tensors) {
  const char* next = BeginningOf(tensors[0]);
  for (const at::Tensor& tensor : tensors) {
    if (!IsPlain(tensor) || !tensor.is_alias_of(tensors[0]) || BeginningOf(tensor) != next) return false;
    next += tensor.nbytes();
  }
  return true;
}

std::int64_t CountOf(at::TensorList tensors) {
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

}  // namespace

std::optional<DType> DTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kChar:
      return DType::kI8;
    case at::kByte:
      return DType::kU8;
    case at::kShort:
      return DType::kI16;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    case at::kBool:
      return DType::kBool;
    case at::kUInt16:
      return DType::kU16;
    case at::kUInt32:
      return DType::kU32;
    case at::kUInt64:
      return DType::kU64;
    case at::kComplexFloat:
      return DType::kC64;
    case at::kComplexDouble:
      return DType::kC128;
    case at::kFloat8_e4m3fn:
      return DType::kF8E4M3FN;
    case at::kFloat8_e5m2:
      return DType::kF8E5M2;
    default:
      return std::nullopt;
  }
}

void CheckTensor(const char* call, const char* argument, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.defined(), "tutti: ", call, ": ", argument, " is not defined");
  TORCH_CHECK_VALUE(tensor.device().is_cpu() || tensor.device().is_cuda(), "tutti: ", call, ": ", argument, " is on ",
                    tensor.device(), "; Tutti moves tensors on the CPU and on GPUs (cuda)");
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "tutti: ", call, ": ", argument, " is a ", tensor.layout(),
                    " tensor; dense tensors are supported, and sparse COO tensors by all_reduce with SUM");
  if (tensor.numel() == 0 || !tensor.has_storage()) return;
  const std::size_t needed = at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(),
                                                              static_cast<std::size_t>(tensor.storage_offset()));
  TORCH_CHECK_VALUE(tensor.storage().nbytes() >= needed, "tutti: ", call, ": ", argument, " of shape ", tensor.sizes(),
                    " reaches to byte ", needed, " of its storage, which has ", tensor.storage().nbytes(),
                    ": the storage was freed or made smaller (untyped_storage().resize_)");
}

void CheckOutput(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "tutti: elements of an output of shape ",
                    tensor.sizes(),
                    " share memory (an expanded tensor?); an output needs memory of its own, such as "
                    "that of .clone()");
}

void CheckDevice(const char* call, const char* argument, const at::Tensor& tensor, const at::Tensor& like) {
  TORCH_CHECK_VALUE(tensor.device() == like.device(), "tutti: ", call, ": ", argument, " is on ", tensor.device(),
                    ", and another tensor of the call on ", like.device(), "; all must be on the same device");
}

void CheckTensors(const char* call, const char* argument, at::TensorList tensors, const at::Tensor& like) {
  for (const at::Tensor& tensor : tensors) {
    CheckTensor(call, argument, tensor);
    TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), "tutti: ", call, ": ", argument,
                     " has elements of type ", tensor.scalar_type(), " where other tensors of the call have ",
                     like.scalar_type(), "; all need the same type");
    CheckDevice(call, argument, tensor, like);
  }
}

at::Tensor& OnlyTensor(const char* call, const char* argument, std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "tutti: ", call, ": ", tensors.size(), " tensors as ", argument,
                    "; one tensor per call is supported");
  CheckTensor(call, argument, tensors[0]);
  return tensors[0];
}

at::Tensor AliasOf(const at::Tensor& tensor) { return tensor.detach(); }

at::Tensor PlainRoomFor(const at::Tensor& tensor) {
  return IsPlain(tensor) ? tensor : at::empty(tensor.sizes(), tensor.options().memory_format(std::nullopt));
}

at::Tensor RoomForAll(at::TensorList tensors) {
  if (tensors.size() == 1) return PlainRoomFor(tensors[0]);
  if (LieTogether(tensors)) {
    return at::empty({0}, tensors[0].options())
        .set_(tensors[0].storage(), tensors[0].storage_offset(), {CountOf(tensors)}, {1});
  }
  return at::empty({CountOf(tensors)}, tensors[0].options());
}

at::Tensor Joined(at::TensorList tensors) {
  if (tensors.size() == 1) return Plain(tensors[0]);
  at::Tensor room = RoomForAll(tensors);
  if (room.is_alias_of(tensors[0])) return room;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    CopyQuietly(tensor, room.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  return room;
}

void Distribute(const at::Tensor& room, at::TensorList tensors) {
  if (tensors.empty() || room.is_alias_of(tensors[0])) return;
  const at::Tensor flat = room.view({-1});
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    CopyQuietly(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()), tensor);
    begin += tensor.numel();
  }
}

void CopyQuietly(const at::Tensor& from, const at::Tensor& to) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  to.copy_(from);
}

bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  return BeginningOf(a) < BeginningOf(b) + b.nbytes() && BeginningOf(b) < BeginningOf(a) + a.nbytes();
}

}  // namespace tutti::dist
