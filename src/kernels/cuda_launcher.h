// How the functions of launch.h launch kernels on a GPU. Only sources of CUDA include this file.
#ifndef TUTTI_KERNELS_CUDA_LAUNCHER_H_
#define TUTTI_KERNELS_CUDA_LAUNCHER_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda_team.h"
#include "kernels/launch.h"
#include "kernels/message_jobs.h"

namespace tutti::kernels {

inline constexpr int kThreadsOfOctets = 256;
inline constexpr int kWarpsOfUnits = 8;               // of a thread block whose warps work on a unit each
inline constexpr int kThreadsOfUnit = 512;            // of a thread block that works on a unit
inline constexpr std::int64_t kMostBlocks = 1 << 16;  // of a launch; threads loop over what is more
inline constexpr std::int64_t kMostOfWarp = 1024;     // elements of a unit that a warp holds in registers

template <class Octets>
__global__ void __launch_bounds__(kThreadsOfOctets)
    OctetKernel(const __grid_constant__ Octets octets, std::int64_t count) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreadsOfOctets + threadIdx.x;
  RunOctets(octets, count, thread, std::int64_t{gridDim.x} * kThreadsOfOctets);
}

template <class Coder, class Runner, class Batch>
__global__ void __launch_bounds__(kWarpsOfUnits* kWarp)
    WarpKernel(const __grid_constant__ Batch batch, std::int64_t units) {
  __shared__ typename Coder::Scratch scratch[kWarpsOfUnits];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t stride = std::int64_t{gridDim.x} * kWarpsOfUnits;
  for (std::int64_t unit = std::int64_t{blockIdx.x} * kWarpsOfUnits + warp; unit < units; unit += stride) {
    RunUnit<Coder, Runner>(WarpTeam(), scratch[warp], batch, unit);
  }
}

template <class Coder, class Runner, class Batch>
__global__ void __launch_bounds__(kThreadsOfUnit)
    ThreadBlockKernel(const __grid_constant__ Batch batch, std::int64_t units) {
  __shared__ typename Coder::Scratch scratch;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    RunUnit<Coder, Runner>(ThreadBlockTeam<kThreadsOfUnit>(), scratch, batch, unit);
  }
}

class CudaLauncher {
 public:
  explicit CudaLauncher(Stream stream) : stream_(stream) {}

  template <class Octets>
  absl::Status EnqueueOctets(const Octets& octets, std::int64_t count) const {
    if (count == 0) return absl::OkStatus();
    ForgetReportedError();
    OctetKernel<<<BlocksFor(count, std::int64_t{kThreadsOfOctets} * kOctet), kThreadsOfOctets, 0, stream_>>>(octets,
                                                                                                             count);
    return StatusOfLaunch();
  }

  // Small blocks get a warp each; so do the coders whose elements are decoded alone.
  template <class Coder, class Runner, class Batch>
  absl::Status EnqueueUnits(const Batch& batch) const {
    const std::int64_t units = batch.ends[batch.num_jobs - 1];
    ForgetReportedError();
    if constexpr (Coder::kAlone) {
      bool small = true;
      for (int i = 0; i < batch.num_jobs; ++i) small = small && Runner::LayoutOf(batch.jobs[i]).block <= kMostOfWarp;
      if (small) {
        WarpKernel<Coder, Runner><<<BlocksFor(units, kWarpsOfUnits), kWarpsOfUnits * kWarp, 0, stream_>>>(batch, units);
        return StatusOfLaunch();
      }
    }
    ThreadBlockKernel<Coder, Runner><<<BlocksFor(units, 1), kThreadsOfUnit, 0, stream_>>>(batch, units);
    return StatusOfLaunch();
  }

 private:
  static unsigned BlocksFor(std::int64_t work, std::int64_t of_block) {
    return static_cast<unsigned>(std::min((work + of_block - 1) / of_block, kMostBlocks));
  }
  // A call that has returned an error leaves it behind as this thread's last one, for which a launch must not be
  // blamed.
  static void ForgetReportedError() { (void)cudaGetLastError(); }
  static absl::Status StatusOfLaunch() {
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("launch of a kernel: ", cudaGetErrorString(error)));
  }

  Stream stream_;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CUDA_LAUNCHER_H_
