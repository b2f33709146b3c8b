// Teams of a GPU's threads: warps, and thread blocks. Only sources of CUDA include this file.
#ifndef TUTTI_KERNELS_CUDA_TEAM_H_
#define TUTTI_KERNELS_CUDA_TEAM_H_

#include <cstdint>
#include <cstring>

#include "kernels/team.h"

namespace tutti::kernels {

inline constexpr int kWarp = 32;

// kLanes threads of a warp, a power of two; team.h says what the functions do.
template <int kLanes>
struct LanesTeam {
  __device__ static int rank() { return static_cast<int>(threadIdx.x % kLanes); }
  static constexpr int size() { return kLanes; }
  __device__ void Sync() const { __syncwarp(mask()); }
  __device__ bool All(bool value) const { return __all_sync(mask(), value) != 0; }
  __device__ bool Any(bool value) const { return __any_sync(mask(), value) != 0; }
  template <class T>
  __device__ T Combine(T value) const {
    constexpr int kWords = sizeof(T) / sizeof(std::uint32_t);
    static_assert(sizeof(T) % sizeof(std::uint32_t) == 0);
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      std::uint32_t words[kWords];
      memcpy(words, &value, sizeof(value));
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(mask(), words[i], distance);
      T other;
      memcpy(&other, words, sizeof(other));
      value.Add(other);
    }
    return value;
  }
  __device__ std::uint64_t SumBefore(std::uint64_t value, std::uint64_t& total) const {
    std::uint64_t sum = value;
#pragma unroll
    for (int distance = 1; distance < kLanes; distance *= 2) {
      const std::uint64_t before = __shfl_up_sync(mask(), sum, distance, kLanes);
      if (rank() >= distance) sum += before;
    }
    total = __shfl_sync(mask(), sum, kLanes - 1, kLanes);
    return sum - value;
  }

 private:
  // The threads of the team among those of its warp.
  __device__ static unsigned mask() {
    constexpr unsigned kTeam = static_cast<unsigned>((std::uint64_t{1} << kLanes) - 1);
    return kTeam << (threadIdx.x % kWarp / kLanes * kLanes);
  }
};

using WarpTeam = LanesTeam<kWarp>;

// A thread block of kThreads threads.
template <int kThreads>
struct ThreadBlockTeam {
  static constexpr int kWarps = kThreads / kWarp;
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  static constexpr int size() { return kThreads; }
  __device__ void Sync() const { __syncthreads(); }
  __device__ bool All(bool value) const { return __syncthreads_and(value) != 0; }
  __device__ bool Any(bool value) const { return __syncthreads_or(value) != 0; }
  template <class T>
  __device__ T Combine(T value) const {
    __shared__ std::uint32_t of_warps[kWarps][sizeof(T) / sizeof(std::uint32_t)];
    value = WarpTeam().Combine(value);
    Sync();  // of an earlier call all threads have read
    if (WarpTeam::rank() == 0) memcpy(of_warps[rank() / kWarp], &value, sizeof(value));
    Sync();
    memcpy(&value, of_warps[0], sizeof(value));
    for (int warp = 1; warp < kWarps; ++warp) {
      T other;
      memcpy(&other, of_warps[warp], sizeof(other));
      value.Add(other);
    }
    return value;
  }
  __device__ std::uint64_t SumBefore(std::uint64_t value, std::uint64_t& total) const {
    __shared__ std::uint64_t of_warps[kWarps];
    std::uint64_t of_warp = 0;
    std::uint64_t sum = WarpTeam().SumBefore(value, of_warp);
    Sync();
    if (WarpTeam::rank() == 0) of_warps[rank() / kWarp] = of_warp;
    Sync();
    total = 0;
    for (int warp = 0; warp < kWarps; ++warp) {
      if (warp == rank() / kWarp) sum += total;
      total += of_warps[warp];
    }
    return sum;
  }
  __device__ void Increment(std::uint64_t& counter) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(&counter), 1ull);  // NOLINT: the type that atomicAdd takes
  }
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CUDA_TEAM_H_
