#include "kernels/device_kernels.h"
#include "kernels/launch_adam-inl.h"
#include "kernels/launch_convert-inl.h"
#include "kernels/launch_messages-inl.h"
#include "kernels/launch_reduce-inl.h"

namespace tutti::kernels {
namespace {

class HostLauncher {
 public:
  explicit HostLauncher(Stream /*stream*/) {}

  template <class Octets>
  absl::Status EnqueueOctets(const Octets& octets, std::int64_t count) const {
    RunOctets(octets, count, /*thread=*/0, /*threads=*/1);
    return absl::OkStatus();
  }

  template <class Coder, class Runner, class Batch>
  absl::Status EnqueueUnits(const Batch& batch) const {
    typename Coder::Scratch scratch;
    const std::int64_t units = batch.ends[batch.num_jobs - 1];
    for (std::int64_t unit = 0; unit < units; ++unit) RunUnit<Coder, Runner>(OneThread(), scratch, batch, unit);
    return absl::OkStatus();
  }
};

}  // namespace

const DeviceKernels& HostKernels() { return kKernelsOf<HostLauncher>; }

#ifndef TUTTI_WITH_CUDA
absl::StatusOr<const DeviceKernels*> CudaKernels() {
  return absl::UnimplementedError(
      "this tutti was built without CUDA; where there is an nvcc, a build with -DTUTTI_CUDA=ON has what runs on GPUs");
}
#endif

}  // namespace tutti::kernels
