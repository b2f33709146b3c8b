// A GPU as torch knows it. Everything here goes through interfaces that torch has for any device, in its libraries for
// the CPU: so the extension links no library of CUDA, and serves every build of its version of torch.
#ifndef TUTTI_TORCH_PROCESS_GROUP_GPU_H_
#define TUTTI_TORCH_PROCESS_GROUP_GPU_H_

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tutti/torch/streams.h"

namespace tutti::dist {

using nn::CurrentStream;

// Whether torch has begun to work on a GPU of this process: otherwise no tensor is there. Begins nothing itself.
inline bool TorchWorksOnGpus() {
  const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
  if (!cuda.hasCUDA()) return false;
  for (at::DeviceIndex gpu = 0; gpu < cuda.deviceCount(); ++gpu) {
    if (cuda.hasPrimaryContext(gpu)) return true;
  }
  return false;
}

// A stream of torch's pool, beside that on which programs usually compute.
inline c10::Stream PoolStream(at::Device gpu) {
  return c10::impl::VirtualGuardImpl(gpu.type()).getStreamFromGlobalPool(gpu);
}

// Keeps the memory of `tensor`, once the tensor is let go, from serving another one before `stream` has come to what is
// enqueued there at that time.
inline void UseOnStream(const at::Tensor& tensor, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_GPU_H_
