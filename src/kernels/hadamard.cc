#include "kernels/hadamard.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/hadamard.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

void HadamardHere(float* values, std::size_t count) { Transform(Elements{values}, count, values, Elements{values}); }

void RotateThereHere(const std::uint32_t* signs, const float* values, std::size_t count, float* rotated) {
  RotateThere(signs, values, count, NothingAhead(), rotated);
}

void RotateBackHere(const std::uint32_t* signs, float* rotated, std::size_t count, bool accumulate, float* values) {
  if (accumulate) return RotateBack<true>(signs, Elements{rotated}, count, NothingAhead(), rotated, values);
  RotateBack<false>(signs, Elements{rotated}, count, NothingAhead(), rotated, values);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {
namespace {

HWY_EXPORT(HadamardHere);
HWY_EXPORT(RotateThereHere);
HWY_EXPORT(RotateBackHere);

}  // namespace

void Hadamard(float* values, std::size_t count) { HWY_DYNAMIC_DISPATCH(HadamardHere)(values, count); }

Rotation::Rotation(std::uint64_t seed, std::size_t elements) {
  const RandomStream signs = RotationSigns(seed);
  for (std::size_t i = 0; i < elements; ++i) signs_[i] = RotationSign(signs, i);
}

void Rotation::Apply(absl::Span<const float> values, float* rotated) const {
  HWY_DYNAMIC_DISPATCH(RotateThereHere)(signs_.data(), values.data(), values.size(), rotated);
}

void Rotation::Undo(float* rotated, bool accumulate, absl::Span<float> values) const {
  HWY_DYNAMIC_DISPATCH(RotateBackHere)(signs_.data(), rotated, values.size(), accumulate, values.data());
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
