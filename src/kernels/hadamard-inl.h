// The rotation of hadamard.h on vectors. Included once per instruction set.
#if defined(TUTTI_KERNELS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_HADAMARD_INL_H_
#undef TUTTI_KERNELS_HADAMARD_INL_H_
#else
#define TUTTI_KERNELS_HADAMARD_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/hadamard.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE void SumAndDifference(V& a, V& b) {
  const V sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// Sources and sinks are where the elements of a transform come from, and go to: `source(d, i)` gives the vector of
// elements i …, `sink(d, v, i)` takes it.
struct Elements {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    return hn::LoadU(d, at + i);
  }
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> v, std::size_t i) const {
    hn::StoreU(v, d, at + i);
  }

  HWY_INLINE Elements From(std::size_t i) const { return {at + i}; }

  float* at;
};

// What multiplies elements by a factor, and by random signs.
struct Scale {
  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> v, std::size_t i) const {
    const auto sign = hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<D>(), signs + i));
    return hn::Xor(hn::Mul(v, hn::Set(d, factor)), sign);
  }

  const std::uint32_t* signs;
  float factor;
};

template <class Ahead>
struct ScaledElements {
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    ahead.template At<hn::MaxLanes(D()) * sizeof(float)>(from + i);
    return scale.Apply(d, hn::LoadU(d, from + i), i);
  }

  const float* from;
  Scale scale;
  const Ahead& ahead;
};

// Sets elements to scaled ones, or adds these.
template <bool kAccumulate, class Ahead>
struct IntoScaled {
  template <class D>
  HWY_INLINE void operator()(D d, hn::Vec<D> v, std::size_t i) const {
    ahead.template At<hn::MaxLanes(D()) * sizeof(float)>(to + i);
    v = scale.Apply(d, v, i);
    if constexpr (kAccumulate) v = hn::Add(hn::LoadU(d, to + i), v);
    hn::StoreU(v, d, to + i);
  }

  Scale scale;
  float* to;
  const Ahead& ahead;
};

// The stage of elements `distance` apart, where a vector has at most `distance` lanes.
template <class D, class Source, class Sink>
HWY_INLINE void OneStage(D d, const Source& source, std::size_t count, std::size_t distance, const Sink& sink) {
  for (std::size_t begin = 0; begin < count; begin += 2 * distance) {
    for (std::size_t i = begin; i < begin + distance; i += hn::Lanes(d)) {
      auto a = source(d, i);
      auto b = source(d, i + distance);
      SumAndDifference(a, b);
      sink(d, a, i);
      sink(d, b, i + distance);
    }
  }
}

// The stages of elements `distance`, 2 · distance and 4 · distance apart, of eight vectors `distance` apart.
template <class D, class Source, class Sink>
HWY_INLINE void StagesOfEight(D d, const Source& source, std::size_t i, std::size_t distance, const Sink& sink) {
  auto v0 = source(d, i);
  auto v1 = source(d, i + 1 * distance);
  auto v2 = source(d, i + 2 * distance);
  auto v3 = source(d, i + 3 * distance);
  auto v4 = source(d, i + 4 * distance);
  auto v5 = source(d, i + 5 * distance);
  auto v6 = source(d, i + 6 * distance);
  auto v7 = source(d, i + 7 * distance);
  SumAndDifference(v0, v1);
  SumAndDifference(v2, v3);
  SumAndDifference(v4, v5);
  SumAndDifference(v6, v7);
  SumAndDifference(v0, v2);
  SumAndDifference(v1, v3);
  SumAndDifference(v4, v6);
  SumAndDifference(v5, v7);
  SumAndDifference(v0, v4);
  SumAndDifference(v1, v5);
  SumAndDifference(v2, v6);
  SumAndDifference(v3, v7);
  sink(d, v0, i);
  sink(d, v1, i + 1 * distance);
  sink(d, v2, i + 2 * distance);
  sink(d, v3, i + 3 * distance);
  sink(d, v4, i + 4 * distance);
  sink(d, v5, i + 5 * distance);
  sink(d, v6, i + 6 * distance);
  sink(d, v7, i + 7 * distance);
}

template <class D, class Source, class Sink>
HWY_INLINE void ThreeStages(D d, const Source& source, std::size_t count, std::size_t distance, const Sink& sink) {
  for (std::size_t begin = 0; begin < count; begin += 8 * distance) {
    for (std::size_t i = begin; i < begin + distance; i += hn::Lanes(d)) StagesOfEight(d, source, i, distance, sink);
  }
}

#if HWY_TARGET != HWY_SCALAR
// The vectors of another source after the stages of elements less than a vector apart. Vectors have 4, 8 or 16 lanes.
template <class D, class Source>
class InVectors {
 public:
  HWY_INLINE InVectors(D d, const Source& source)
      : source_(source), sign1_(Signs<0>(d)), sign2_(Signs<1>(d)), sign4_(Signs<2>(d)), sign8_(Signs<3>(d)) {}

  HWY_INLINE hn::Vec<D> operator()(D d, std::size_t i) const {
    // An element times its sign is added to the neighbour; the product is exact.
    auto v = source_(d, i);
    v = hn::MulAdd(v, sign1_, hn::Shuffle2301(v));
    v = hn::MulAdd(v, sign2_, hn::Shuffle1032(v));
    if constexpr (hn::MaxLanes(D()) >= 8) v = hn::MulAdd(v, sign4_, hn::SwapAdjacentBlocks(v));
    if constexpr (hn::MaxLanes(D()) >= 16) v = hn::MulAdd(v, sign8_, hn::ConcatLowerUpper(d, v, v));
    return v;
  }

 private:
  // −1 in lanes whose number has bit kBit, 1 in the others.
  template <int kBit>
  static HWY_INLINE hn::Vec<D> Signs(D d) {
    const hn::RebindToUnsigned<D> du32;
    const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<kBit>(hn::Iota(du32, 0u)));
    return hn::Or(hn::Set(d, 1.0f), hn::BitCast(d, sign));
  }

  const Source& source_;
  const hn::Vec<D> sign1_, sign2_, sign4_, sign8_;
};

// Transforms at least eight vectors. `scratch`, of `count` elements, may be where the source has its elements.
template <class D, class Source, class Sink>
HWY_INLINE void TransformLong(D d, const Source& source, std::size_t count, float* scratch, const Sink& sink) {
  const InVectors<D, Source> in_vectors(d, source);
  const Elements between{scratch};
  std::size_t distance = hn::Lanes(d);
  if (8 * distance == count) return ThreeStages(d, in_vectors, count, distance, sink);
  ThreeStages(d, in_vectors, count, distance, between);
  for (distance *= 8; 8 * distance < count; distance *= 8) ThreeStages(d, between, count, distance, between);
  if (8 * distance == count) return ThreeStages(d, between, count, distance, sink);
  for (; 2 * distance < count; distance *= 2) OneStage(d, between, count, distance, between);
  OneStage(d, between, count, distance, sink);
}
#endif

// Multiplies `count` elements of the source, a power of two, by the Hadamard matrix. `scratch`, of `count` elements,
// may be where the source has its elements, and where the sink has its own.
template <class Source, class Sink>
HWY_INLINE void Transform(const Source& source, std::size_t count, float* scratch, const Sink& sink) {
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 16> sixteen;
  const hn::CappedTag<float, 8> eight;
  const hn::CappedTag<float, 4> four;
  if (count >= 8 * hn::Lanes(sixteen)) return TransformLong(sixteen, source, count, scratch, sink);
  if (count >= 8 * hn::Lanes(eight)) return TransformLong(eight, source, count, scratch, sink);
  if (count >= 8 * hn::Lanes(four)) return TransformLong(four, source, count, scratch, sink);
#endif
  const hn::CappedTag<float, 1> one;
  const Elements between{scratch};
  for (std::size_t i = 0; i < count; ++i) between(one, source(one, i), i);
  for (std::size_t distance = 1; distance < count; distance *= 2) OneStage(one, between, count, distance, between);
  for (std::size_t i = 0; i < count; ++i) sink(one, between(one, i), i);
}

// Rotates the pieces of a block: powers of two, the largest first.
template <class Ahead>
HWY_INLINE void RotateThere(const std::uint32_t* signs, const float* values, std::size_t count, const Ahead& ahead,
                            float* rotated) {
  for (std::size_t begin = 0; begin < count;) {
    const std::size_t n = std::bit_floor(count - begin);
    const ScaledElements<Ahead> source{values + begin, {signs + begin, RotationFactorThere(n)}, ahead};
    Transform(source, n, rotated + begin, Elements{rotated + begin});
    begin += n;
  }
}

// Sets values[0, count) to what was rotated into the source, or adds it.
template <bool kAccumulate, class Source, class Ahead>
HWY_INLINE void RotateBack(const std::uint32_t* signs, const Source& source, std::size_t count, const Ahead& ahead,
                           float* scratch, float* values) {
  for (std::size_t begin = 0; begin < count;) {
    const std::size_t n = std::bit_floor(count - begin);
    const IntoScaled<kAccumulate, Ahead> sink{{signs + begin, RotationFactorBack(n)}, values + begin, ahead};
    Transform(source.From(begin), n, scratch, sink);
    begin += n;
  }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_HADAMARD_INL_H_
