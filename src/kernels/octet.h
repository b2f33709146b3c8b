// The unit in which a thread of a device kernel works: up to eight elements that follow one another in memory, which a
// GPU loads and stores as whole vectors where they are aligned.
#ifndef TUTTI_KERNELS_OCTET_H_
#define TUTTI_KERNELS_OCTET_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace tutti::kernels {

inline constexpr int kOctet = 8;

#ifdef __CUDA_ARCH__
__device__ inline bool IsAligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}
#endif

// Loads elements [0, count) of the kMax elements at `from`, which need no alignment, and sets the others to 0.
template <typename T, int kMax>
TUTTI_HOST_DEVICE void LoadElements(const void* from, int count, T (&to)[kMax]) {
#ifdef __CUDA_ARCH__
  constexpr std::size_t kBytes = kMax * sizeof(T);
  if constexpr (kBytes % sizeof(uint4) == 0) {
    if (count == kMax && IsAligned(from, sizeof(uint4))) {
      TUTTI_UNROLL
      for (std::size_t i = 0; i < kBytes / sizeof(uint4); ++i) {
        const uint4 part = static_cast<const uint4*>(from)[i];
        memcpy(reinterpret_cast<char*>(to) + i * sizeof(part), &part, sizeof(part));
      }
      return;
    }
  } else if constexpr (kBytes == sizeof(uint2)) {
    if (count == kMax && IsAligned(from, sizeof(uint2))) {
      const uint2 part = *static_cast<const uint2*>(from);
      memcpy(to, &part, sizeof(part));
      return;
    }
  } else if constexpr (kBytes == sizeof(std::uint32_t)) {
    if (count == kMax && IsAligned(from, sizeof(std::uint32_t))) {
      const std::uint32_t part = *static_cast<const std::uint32_t*>(from);
      memcpy(to, &part, sizeof(part));
      return;
    }
  }
  const bool aligned = IsAligned(from, sizeof(T));
  TUTTI_UNROLL
  for (int i = 0; i < kMax; ++i) {
    to[i] = T{};
    if (i >= count) continue;
    if (aligned) {
      to[i] = static_cast<const T*>(from)[i];
    } else {
      memcpy(&to[i], static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
    }
  }
#else
  if (count < kMax) std::memset(to, 0, sizeof(to));
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
#endif
}

#ifdef __CUDA_ARCH__
// Stores 16, 8 or 4 bytes as one vector. (The compiler makes several stores of a struct of words, each of which then
// writes to a part of all the memory that the threads of a warp write to together: a third of the speed.)
__device__ inline void StoreVector(const std::uint32_t (&words)[4], void* to) {
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}
__device__ inline void StoreVector(const std::uint32_t (&words)[2], void* to) {
  asm volatile("st.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]) : "memory");
}
__device__ inline void StoreVector(const std::uint32_t (&words)[1], void* to) {
  *static_cast<std::uint32_t*>(to) = words[0];
}
#endif

// Stores `elements` [0, count) at `to`, which needs no alignment.
template <typename T, int kMax>
TUTTI_HOST_DEVICE void StoreElements(const T (&elements)[kMax], int count, void* to) {
#ifdef __CUDA_ARCH__
  constexpr std::size_t kBytes = kMax * sizeof(T);
  constexpr std::size_t kVector = kBytes % 16 == 0 ? 16 : kBytes == 8 || kBytes == 4 ? kBytes : 0;
  if constexpr (kVector > 0) {
    if (count == kMax && IsAligned(to, kVector)) {
      TUTTI_UNROLL
      for (std::size_t i = 0; i < kBytes / kVector; ++i) {
        std::uint32_t words[kVector / sizeof(std::uint32_t)];
        memcpy(words, reinterpret_cast<const char*>(elements) + i * kVector, kVector);
        StoreVector(words, static_cast<char*>(to) + i * kVector);
      }
      return;
    }
  }
  const bool aligned = IsAligned(to, sizeof(T));
  TUTTI_UNROLL
  for (int i = 0; i < kMax; ++i) {
    if (i >= count) continue;
    if (aligned) {
      static_cast<T*>(to)[i] = elements[i];
    } else {
      memcpy(static_cast<char*>(to) + i * sizeof(T), &elements[i], sizeof(T));
    }
  }
#else
  std::memcpy(to, elements, static_cast<std::size_t>(count) * sizeof(T));
#endif
}

// The part of a kernel on `count` elements that belongs to thread `thread` of `threads`. `octets.At(begin, n)` computes
// elements [begin, begin + n), n ≤ kOctet.
template <class Octets>
TUTTI_HOST_DEVICE void RunOctets(const Octets& octets, std::int64_t count, std::int64_t thread, std::int64_t threads) {
  for (std::int64_t begin = thread * kOctet; begin < count; begin += threads * kOctet) {
    octets.At(begin, count - begin < kOctet ? static_cast<int>(count - begin) : kOctet);
  }
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_OCTET_H_
