#include "kernels/adam.h"

#include <cstddef>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adam.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/floating_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

template <class Format, class D>
HWY_INLINE hn::Vec<D> Load(D d, const void* elements, std::size_t i) {
  return Format::Load(d, static_cast<const typename Format::Element*>(elements) + i);
}

template <class Format, class D>
HWY_INLINE void Store(D d, hn::Vec<D> v, void* elements, std::size_t i) {
  Format::template Store<false>(d, v, static_cast<typename Format::Element*>(elements) + i);
}

template <class D>
HWY_INLINE hn::Vec<D> Times(D d, float factor, hn::Vec<D> v) {
  return hn::Mul(hn::Set(d, factor), v);
}

template <class Format, class D>
HWY_INLINE hn::Vec<D> DecayedGradient(D d, const AdamFactors& factors, const void* gradient, const void* weights,
                                      std::size_t i) {
  const auto g = Load<Format>(d, gradient, i);
  if (factors.weight_decay == 0.0f) return g;
  return hn::Add(g, Times(d, factors.weight_decay, Load<Format>(d, weights, i)));
}

template <class D>
HWY_INLINE hn::Vec<D> Blend(D d, const AdamFactors& factors, hn::Vec<D> m, hn::Vec<D> g) {
  return hn::Add(Times(d, factors.beta1, m), Times(d, factors.from_gradient1, g));
}

template <class Format, class D>
HWY_INLINE void Move(D d, const AdamFactors& factors, void* weights, std::size_t i, hn::Vec<D> m,
                     hn::Vec<D> deviation) {
  const auto denominator = hn::Add(deviation, hn::Set(d, factors.epsilon));
  const auto step = hn::Div(Times(d, factors.step_size, m), denominator);
  Store<Format>(d, hn::Sub(Load<Format>(d, weights, i), step), weights, i);
}

template <class Format>
struct BlendPass {
  template <class D>
  HWY_INLINE void At(D d, std::size_t i) const {
    const auto g = DecayedGradient<Format>(d, factors, gradient, weights, i);
    Store<Format>(d, Blend(d, factors, hn::LoadU(d, m + i), g), gradient, i);
  }

  const AdamFactors& factors;
  void* gradient;
  const void* weights;
  const float* m;
};

template <class Format>
struct AdamPass {
  template <class D>
  HWY_INLINE void At(D d, std::size_t i) const {
    const auto g = DecayedGradient<Format>(d, factors, gradient, weights, i);
    const auto new_m = Blend(d, factors, hn::LoadU(d, m + i), g);
    const auto new_v =
        hn::Add(Times(d, factors.beta2, hn::LoadU(d, v + i)), Times(d, factors.from_gradient2, hn::Mul(g, g)));
    hn::StoreU(new_m, d, m + i);
    hn::StoreU(new_v, d, v + i);
    Move<Format>(d, factors, weights, i, new_m, hn::Div(hn::Sqrt(new_v), hn::Set(d, factors.correction)));
  }

  const AdamFactors& factors;
  void* weights;
  const void* gradient;
  float* m;
  float* v;
};

template <class Format>
struct FrozenAdamPass {
  template <class D>
  HWY_INLINE void At(D d, std::size_t i) const {
    const auto new_m = Load<Format>(d, momentum, i);
    hn::StoreU(new_m, d, m + i);
    Move<Format>(d, factors, weights, i, new_m, hn::Sqrt(hn::LoadU(d, v + i)));
  }

  const AdamFactors& factors;
  void* weights;
  const void* momentum;
  float* m;
  const float* v;
};

// A vector of one lane takes the remaining elements through the same operations.
template <class Pass>
void ForEachElement(const Pass& pass, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t end = static_cast<std::size_t>(count);
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= end; i += lanes) pass.At(d, i);
  for (; i < end; ++i) pass.At(one, i);
}

template <template <class Format> class Pass, typename... Operands>
void Run(DType dtype, std::int64_t count, const AdamFactors& factors, Operands... operands) {
  if (dtype == DType::kF32) return ForEachElement(Pass<NativeFormat<float>>{factors, operands...}, count);
  if (dtype == DType::kF16) return ForEachElement(Pass<Float16Format>{factors, operands...}, count);
  ForEachElement(Pass<BFloat16Format>{factors, operands...}, count);
}

void BlendHere(DType dtype, void* gradient, const void* weights, const float* m, std::int64_t count,
               const AdamFactors& factors) {
  Run<BlendPass>(dtype, count, factors, gradient, weights, m);
}

void AdamHere(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
              const AdamFactors& factors) {
  Run<AdamPass>(dtype, count, factors, weights, gradient, m, v);
}

void FrozenAdamHere(DType dtype, void* weights, const void* momentum, float* m, const float* v, std::int64_t count,
                    const AdamFactors& factors) {
  Run<FrozenAdamPass>(dtype, count, factors, weights, momentum, m, v);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(BlendHere);
HWY_EXPORT(AdamHere);
HWY_EXPORT(FrozenAdamHere);

void BlendIntoMomentum(DType dtype, void* gradient, const void* weights, const float* m, std::int64_t count,
                       const AdamFactors& factors) {
  HWY_DYNAMIC_DISPATCH(BlendHere)(dtype, gradient, weights, m, count, factors);
}

void AdamStep(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
              const AdamFactors& factors) {
  HWY_DYNAMIC_DISPATCH(AdamHere)(dtype, weights, gradient, m, v, count, factors);
}

void FrozenAdamStep(DType dtype, void* weights, const void* momentum, float* m, const float* v, std::int64_t count,
                    const AdamFactors& factors) {
  HWY_DYNAMIC_DISPATCH(FrozenAdamHere)(dtype, weights, momentum, m, v, count, factors);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
