// The arithmetic of Adam and QAdam on one tensor, one pass for each function: SIMD with run-time dispatch (Highway).
#ifndef TUTTI_KERNELS_ADAM_H_
#define TUTTI_KERNELS_ADAM_H_

#include <cstdint>

#include "tutti/dtype.h"

namespace tutti::kernels {

// Every product, sum, quotient and root below is rounded to f32 by itself, in the order written. 16-bit weights and
// gradients are widened on their way in; results are rounded once on their way out. `dtype`, of weights and gradients,
// is f32, f16 or bf16. Ranges have `count` elements and do not overlap. Thread-safe, allocates nothing.
struct AdamFactors {
  float beta1 = 0;
  float from_gradient1 = 1;  // 1 - beta1
  float beta2 = 0;
  float from_gradient2 = 1;  // 1 - beta2
  float weight_decay = 0;
  float step_size = 0;   // lr / (1 - beta1^t)
  float correction = 1;  // √(1 - beta2^t)
  float epsilon = 0;
};

// gradient ← beta1 · m + from_gradient1 · (gradient + weight_decay · weights)
void BlendIntoMomentum(DType dtype, void* gradient, const void* weights, const float* m, std::int64_t count,
                       const AdamFactors& factors);

// g = gradient + weight_decay · weights
// m ← beta1 · m + from_gradient1 · g
// v ← beta2 · v + from_gradient2 · (g · g)
// weights ← weights - (step_size · m) / (√v / correction + epsilon)
void AdamStep(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
              const AdamFactors& factors);

// m ← momentum
// weights ← weights - (step_size · m) / (√v + epsilon)
void FrozenAdamStep(DType dtype, void* weights, const void* momentum, float* m, const float* v, std::int64_t count,
                    const AdamFactors& factors);

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_ADAM_H_
