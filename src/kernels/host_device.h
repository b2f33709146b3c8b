// Arithmetic that is written once and runs on CPUs and on GPUs: functions of single elements, and of teams of threads
// that work on a block of elements together.
#ifndef TUTTI_KERNELS_HOST_DEVICE_H_
#define TUTTI_KERNELS_HOST_DEVICE_H_

// In front of a function: nvcc compiles the function for the GPU, too. constexpr functions need no mark.
#ifdef __CUDACC__
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif

// In front of a loop over a small array: on a GPU only an array whose indices are known to the compiler lies in
// registers.
#ifdef __CUDA_ARCH__
#define TUTTI_UNROLL _Pragma("unroll")
#else
#define TUTTI_UNROLL
#endif

// In front of a loop that a GPU runs as a loop, and of one of which it runs four rounds at a time, so that the memory
// that they read need not be waited for in each.
#ifdef __CUDA_ARCH__
#define TUTTI_KEEP_LOOP _Pragma("unroll 1")
#define TUTTI_UNROLL_BY_FOUR _Pragma("unroll 4")
#else
#define TUTTI_KEEP_LOOP
#define TUTTI_UNROLL_BY_FOUR
#endif

namespace tutti::kernels {

// sum + a · b, where the product is exact, so that it makes no difference whether the product is rounded by itself.
TUTTI_HOST_DEVICE inline float PlusExactProduct(float sum, float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, sum);
#else
  return sum + a * b;
#endif
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_HOST_DEVICE_H_
