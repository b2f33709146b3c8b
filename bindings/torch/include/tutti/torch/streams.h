// The streams of GPUs, as torch knows them: through interfaces that torch has for any device, in its libraries for the
// CPU, so that nothing here needs CUDA.
#ifndef TUTTI_TORCH_STREAMS_H_
#define TUTTI_TORCH_STREAMS_H_

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tutti/synchronizer.h"

namespace tutti::nn {

// The stream on which this thread computes on `gpu` at the moment; Stream::native_handle() is its cudaStream_t.
inline c10::Stream CurrentStream(c10::Device gpu) { return c10::impl::VirtualGuardImpl(gpu.type()).getStream(gpu); }

// The cudaStream_t of the current stream; null on the CPU.
inline void* CurrentStreamHandle(c10::Device device) {
  return device.is_cpu() ? nullptr : CurrentStream(device).native_handle();
}

// Tells `synchronizer` on which stream this thread computes with the weights and gradients on `device`.
inline void FollowStream(Synchronizer& synchronizer, c10::Device device) {
  if (!device.is_cpu()) synchronizer.SetStream(CurrentStreamHandle(device));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_STREAMS_H_
