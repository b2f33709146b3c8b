// How the functions of launch.h launch kernels on a GPU. Only sources of CUDA include this file.
#ifndef TUTTI_KERNELS_CUDA_LAUNCHER_H_
#define TUTTI_KERNELS_CUDA_LAUNCHER_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/cuda_team.h"
#include "kernels/launch.h"
#include "kernels/message_jobs.h"

namespace tutti::kernels {

inline constexpr int kThreadsOfOctets = 256;
inline constexpr int kThreadsOfTeams = 256;          // of a thread block whose warps or parts of them take a unit each
inline constexpr int kBlocksOfTeams = 4;             // of those, whose registers a multiprocessor has room for
inline constexpr int kThreadsOfUnit = 512;           // of a thread block that works on a unit
inline constexpr int kThreadsOfSmallUnit = 64;       // of one whose unit is small
inline constexpr std::int64_t kMaxBlocks = 1 << 16;  // of a launch; threads loop over what is more
inline constexpr std::int64_t kMaxOfWarp = 1024;     // elements of a unit that a warp works on
inline constexpr int kFewLanes = 8;                  // of a team for small units
inline constexpr std::int64_t kMaxOfFewLanes = 256;  // elements of a unit that so few lanes work on

template <class Octets>
__global__ void __launch_bounds__(kThreadsOfOctets)
    OctetKernel(const __grid_constant__ Octets octets, std::int64_t count) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreadsOfOctets + threadIdx.x;
  RunOctets(octets, count, thread, std::int64_t{gridDim.x} * kThreadsOfOctets);
}

template <class Coder, class Runner, int kLanes, class Batch>
__global__ void __launch_bounds__(kThreadsOfTeams, kBlocksOfTeams)
    LanesKernel(const __grid_constant__ Batch batch, std::int64_t units) {
  constexpr int kTeams = kThreadsOfTeams / kLanes;
  __shared__ typename Coder::Scratch scratch[kTeams];
  const int team = static_cast<int>(threadIdx.x) / kLanes;
  const std::int64_t stride = std::int64_t{gridDim.x} * kTeams;
  for (std::int64_t unit = std::int64_t{blockIdx.x} * kTeams + team; unit < units; unit += stride) {
    RunUnit<Coder, Runner>(LanesTeam<kLanes>(), scratch[team], batch, unit);
  }
}

template <class Coder, class Runner, int kThreads, class Batch>
__global__ void __launch_bounds__(kThreads) ThreadBlockKernel(const __grid_constant__ Batch batch, std::int64_t units) {
  __shared__ typename Coder::Scratch scratch;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    RunUnit<Coder, Runner>(ThreadBlockTeam<kThreads>(), scratch, batch, unit);
  }
}

class CudaLauncher {
 public:
  explicit CudaLauncher(Stream stream) : stream_(stream) {}

  template <class Octets>
  absl::Status EnqueueOctets(const Octets& octets, std::int64_t count) const {
    if (count == 0) return absl::OkStatus();
    return Enqueue(OctetKernel<Octets>, BlocksFor(count, std::int64_t{kThreadsOfOctets} * kOctet), kThreadsOfOctets,
                   octets, count);
  }

  // The smaller its blocks are, the fewer threads work on one.
  template <class Coder, class Runner, class Batch>
  absl::Status EnqueueUnits(const Batch& batch) const {
    std::int64_t block = 0;
    for (int i = 0; i < batch.num_jobs; ++i) block = std::max(block, Runner::LayoutOf(batch.jobs[i]).block);
    if constexpr (Coder::kAlone) {
      if constexpr (Coder::kOnePass && Coder::kHasBlocks) {
        if (block <= kMaxOfFewLanes) return EnqueueLanes<Coder, Runner, kFewLanes>(batch);
      }
      if (block <= kMaxOfWarp) return EnqueueLanes<Coder, Runner, kWarp>(batch);
    } else if (block <= kMaxOfWarp) {
      return EnqueueThreadBlocks<Coder, Runner, kThreadsOfSmallUnit>(batch);
    }
    return EnqueueThreadBlocks<Coder, Runner, kThreadsOfUnit>(batch);
  }

 private:
  template <class Coder, class Runner, int kLanes, class Batch>
  absl::Status EnqueueLanes(const Batch& batch) const {
    const std::int64_t units = batch.ends[batch.num_jobs - 1];
    return Enqueue(LanesKernel<Coder, Runner, kLanes, Batch>, BlocksFor(units, kThreadsOfTeams / kLanes),
                   kThreadsOfTeams, batch, units);
  }
  template <class Coder, class Runner, int kThreads, class Batch>
  absl::Status EnqueueThreadBlocks(const Batch& batch) const {
    const std::int64_t units = batch.ends[batch.num_jobs - 1];
    return Enqueue(ThreadBlockKernel<Coder, Runner, kThreads, Batch>, BlocksFor(units, 1), kThreads, batch, units);
  }
  static unsigned BlocksFor(std::int64_t work, std::int64_t of_block) {
    return static_cast<unsigned>(std::min((work + of_block - 1) / of_block, kMaxBlocks));
  }
  template <class Operands>
  absl::Status Enqueue(void (*kernel)(Operands, std::int64_t), unsigned blocks, int threads, const Operands& operands,
                       std::int64_t count) const {
    // A call that has returned an error leaves it behind as this thread's last one, for which a launch must not be
    // blamed.
    (void)cudaGetLastError();
    if (stream_ == LoadingStream()) {
      cudaFuncAttributes attributes;
      (void)cudaFuncGetAttributes(&attributes, kernel);
    } else {
      kernel<<<blocks, threads, 0, stream_>>>(operands, count);
    }
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return absl::OkStatus();
    const std::string text = absl::StrCat("launch of a kernel: ", cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text) : absl::InternalError(text);
  }

  Stream stream_;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CUDA_LAUNCHER_H_
