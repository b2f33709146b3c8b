// The arguments of one Reduce call, as its inner loops take them.
#ifndef TUTTI_KERNELS_REDUCE_OPERANDS_H_
#define TUTTI_KERNELS_REDUCE_OPERANDS_H_

#include <cstddef>
#include <cstdint>

namespace tutti::kernels {

struct Operands {
  void* const* dsts;
  std::size_t num_dsts;
  const void* const* srcs;
  std::size_t num_srcs;
  std::size_t count;
  std::int32_t divisor;  // 1: the result is not divided
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_OPERANDS_H_
