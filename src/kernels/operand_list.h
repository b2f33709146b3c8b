// The memory that a device kernel reads and writes, as a value that is passed to a GPU with the launch.
#ifndef TUTTI_KERNELS_OPERAND_LIST_H_
#define TUTTI_KERNELS_OPERAND_LIST_H_

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace tutti::kernels {

// The most sources, and the most destinations, of one launch.
inline constexpr int kMaxOperands = 128;

struct OperandList {
  const void* srcs[kMaxOperands];
  void* dsts[kMaxOperands];
  int num_srcs = 0;
  int num_dsts = 0;
};

// Sets `list` to the operands. InvalidArgument when they are too many for one launch.
inline absl::Status ListOperands(absl::Span<void* const> dsts, absl::Span<const void* const> srcs, OperandList& list) {
  if (srcs.size() > kMaxOperands || dsts.size() > kMaxOperands) {
    return absl::InvalidArgumentError(absl::StrCat("a kernel with ", srcs.size(), " sources and ", dsts.size(),
                                                   " destinations: the most of each are ", kMaxOperands));
  }
  std::copy(srcs.begin(), srcs.end(), list.srcs);
  std::copy(dsts.begin(), dsts.end(), list.dsts);
  list.num_srcs = static_cast<int>(srcs.size());
  list.num_dsts = static_cast<int>(dsts.size());
  return absl::OkStatus();
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_OPERAND_LIST_H_
