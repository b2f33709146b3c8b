// LaunchBlend, LaunchAdam and LaunchFrozenAdam.
#ifndef TUTTI_KERNELS_LAUNCH_ADAM_INL_H_
#define TUTTI_KERNELS_LAUNCH_ADAM_INL_H_

#include "kernels/adam_octets.h"
#include "kernels/launch.h"

namespace tutti::kernels {

template <template <class Format> class AdamKernel, class Launcher, typename... Operands>
absl::Status LaunchAdamKernel(Stream stream, DType dtype, std::int64_t count, const AdamFactors& factors,
                              Operands... operands) {
  const Launcher launcher(stream);
  const AdamElement adam = {factors};
  if (dtype == DType::kF32) return launcher.EnqueueOctets(AdamKernel<NativeElement<float>>{adam, operands...}, count);
  if (dtype == DType::kF16) return launcher.EnqueueOctets(AdamKernel<Float16Element>{adam, operands...}, count);
  return launcher.EnqueueOctets(AdamKernel<BFloat16Element>{adam, operands...}, count);
}

template <class Launcher>
absl::Status LaunchBlend(Stream stream, DType dtype, void* gradient, const void* weights, const float* m,
                         std::int64_t count, const AdamFactors& factors) {
  return LaunchAdamKernel<BlendOctets, Launcher>(stream, dtype, count, factors, gradient, weights, m);
}

template <class Launcher>
absl::Status LaunchAdam(Stream stream, DType dtype, void* weights, const void* gradient, float* m, float* v,
                        std::int64_t count, const AdamFactors& factors) {
  return LaunchAdamKernel<AdamOctets, Launcher>(stream, dtype, count, factors, weights, gradient, m, v);
}

template <class Launcher>
absl::Status LaunchFrozenAdam(Stream stream, DType dtype, void* weights, const void* momentum, float* m, const float* v,
                              std::int64_t count, const AdamFactors& factors) {
  return LaunchAdamKernel<FrozenAdamOctets, Launcher>(stream, dtype, count, factors, weights, momentum, m, v);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_LAUNCH_ADAM_INL_H_
