// Plain tensors, whose memory holds their elements in order, without gaps, as they are read.
#ifndef TUTTI_TORCH_PLAIN_H_
#define TUTTI_TORCH_PLAIN_H_

#include <ATen/core/Tensor.h>

namespace tutti::nn {

// The memory of a tensor that torch conjugates or negates when it is read (z.conj(), z.conj().imag) holds other
// numbers.
inline bool IsPlain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// `tensor` itself when it is plain; otherwise a plain copy.
inline at::Tensor Plain(const at::Tensor& tensor) {
  return IsPlain(tensor) ? tensor : tensor.contiguous().resolve_conj().resolve_neg();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_PLAIN_H_
