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

#endif  // TUTTI_KERNELS_HOST_DEVICE_H_
