#include "kernels/hadamard.h"

#include <bit>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes sums and differences of elements `distance` apart, where a vector has at most `distance` lanes.
template <class D>
HWY_INLINE void Stage(D d, float* values, std::size_t count, std::size_t distance) {
  for (std::size_t begin = 0; begin < count; begin += 2 * distance) {
    for (std::size_t i = begin; i < begin + distance; i += hn::Lanes(d)) {
      const auto a = hn::LoadU(d, values + i);
      const auto b = hn::LoadU(d, values + i + distance);
      hn::StoreU(hn::Add(a, b), d, values + i);
      hn::StoreU(hn::Sub(a, b), d, values + i + distance);
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// The stages of distance 1 and 2, which lie inside vectors of at least four lanes.
template <class D>
HWY_INLINE void FirstStages(D d, float* values, std::size_t count) {
  const hn::RebindToUnsigned<D> du32;
  const auto lane = hn::Iota(du32, 0u);
  // A difference is the neighbour plus the negated element.
  const auto negate_odd = hn::BitCast(d, hn::ShiftLeft<31>(lane));
  const auto negate_upper = hn::BitCast(d, hn::ShiftLeft<31>(hn::ShiftRight<1>(lane)));
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
    auto v = hn::LoadU(d, values + i);
    v = hn::Add(hn::Shuffle2301(v), hn::Xor(v, negate_odd));
    v = hn::Add(hn::Shuffle1032(v), hn::Xor(v, negate_upper));
    hn::StoreU(v, d, values + i);
  }
}
#endif

void HadamardHere(float* values, std::size_t count) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 8> eight;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  std::size_t distance = 1;
#if HWY_TARGET != HWY_SCALAR
  if (count >= 4) {
    count >= hn::Lanes(d) ? FirstStages(d, values, count) : FirstStages(four, values, count);
    distance = 4;
  }
#endif
  for (; distance < count; distance *= 2) {
    if (distance >= hn::Lanes(d)) {
      Stage(d, values, count, distance);
    } else if (distance >= hn::Lanes(eight)) {
      Stage(eight, values, count, distance);
    } else if (distance >= hn::Lanes(four)) {
      Stage(four, values, count, distance);
    } else {
      Stage(one, values, count, distance);
    }
  }
}

// Sets to[i] to from[i] · factor with the sign of signs[i], or adds the product to to[i].
template <bool kAccumulate, class D>
HWY_INLINE std::size_t ScaleVectors(D d, const float* from, const std::uint32_t* signs, float factor, std::size_t begin,
                                    std::size_t end, float* to) {
  const hn::RebindToUnsigned<D> du32;
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) {
    const auto scaled = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor));
    auto v = hn::Xor(scaled, hn::BitCast(d, hn::LoadU(du32, signs + i)));
    if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, to + i), v);
    hn::StoreU(v, d, to + i);
  }
  return i;
}

template <bool kAccumulate>
void ScaleAll(const float* from, const std::uint32_t* signs, float factor, std::size_t count, float* to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const std::size_t i = ScaleVectors<kAccumulate>(d, from, signs, factor, 0, count, to);
  ScaleVectors<kAccumulate>(one, from, signs, factor, i, count, to);
}

void ScaleHere(const float* from, const std::uint32_t* signs, float factor, std::size_t count, bool accumulate,
               float* to) {
  if (accumulate) return ScaleAll<true>(from, signs, factor, count, to);
  ScaleAll<false>(from, signs, factor, count, to);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(HadamardHere);
HWY_EXPORT(ScaleHere);

}  // namespace

void Hadamard(float* values, std::size_t count) { HWY_DYNAMIC_DISPATCH(HadamardHere)(values, count); }

Rotation::Rotation(std::uint64_t seed, std::size_t elements) {
  const RandomStream signs = RotationSigns(seed);
  for (std::size_t i = 0; i < elements; ++i) signs_[i] = RotationSign(signs, i);
}

void Rotation::Apply(absl::Span<const float> values, float* rotated) const {
  for (std::size_t begin = 0; begin < values.size();) {
    const std::size_t n = std::bit_floor(values.size() - begin);
    HWY_DYNAMIC_DISPATCH(ScaleHere)(&values[begin], &signs_[begin], RotationFactorThere(n), n, false, rotated + begin);
    Hadamard(rotated + begin, n);
    begin += n;
  }
}

void Rotation::Undo(float* rotated, bool accumulate, absl::Span<float> values) const {
  for (std::size_t begin = 0; begin < values.size();) {
    const std::size_t n = std::bit_floor(values.size() - begin);
    Hadamard(rotated + begin, n);
    HWY_DYNAMIC_DISPATCH(ScaleHere)
    (rotated + begin, &signs_[begin], RotationFactorBack(n), n, accumulate, &values[begin]);
    begin += n;
  }
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
