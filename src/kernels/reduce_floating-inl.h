// The loop of ReduceFloating. Included once per instruction set.
//
// Element i of the result is computed from element i of each source, in order, by the same IEEE operations whatever the
// instruction set, the length or the alignment: a vector of one lane takes heads and tails through the same code.
#if defined(TUTTI_KERNELS_REDUCE_FLOATING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_REDUCE_FLOATING_INL_H_
#undef TUTTI_KERNELS_REDUCE_FLOATING_INL_H_
#else
#define TUTTI_KERNELS_REDUCE_FLOATING_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/floating_format-inl.h"
#include "kernels/reduce_operands.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};

struct Product {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
};

// Minimum and Maximum compare and select by themselves, because hn::Min and hn::Max treat NaN and the sign of zero
// differently on each instruction set.
struct Minimum {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};

struct Maximum {
  template <class D>
  static HWY_INLINE hn::Vec<D> Combine(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};

// Division by a small integer. Where a multiplication rounds to the same result it is used instead, because division is
// several times slower.
template <typename Lane>
class Divisor {
 public:
  explicit Divisor(std::int32_t divisor)
      : divisor_(static_cast<Lane>(divisor)),
        reciprocal_(static_cast<Lane>(1) / divisor_),
        kind_(divisor == 1                     ? Kind::kNone
              : (divisor & (divisor - 1)) == 0 ? Kind::kPowerOfTwo
                                               : Kind::kOther) {}

  template <class D>
  HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> v) const {
    if (HWY_LIKELY(kind_ == Kind::kNone)) return v;
    if (kind_ == Kind::kPowerOfTwo) return hn::Mul(v, hn::Set(d, reciprocal_));
    return hn::Div(v, hn::Set(d, divisor_));
  }

 private:
  enum class Kind : std::uint8_t { kNone, kPowerOfTwo, kOther };

  Lane divisor_;
  Lane reciprocal_;
  Kind kind_;
};

// Reduces the elements of whole vectors of `d` in [begin, end), one vector at a time; returns where it stopped.
template <class Format, class Op, class D>
HWY_INLINE std::size_t ReduceSingles(D d, const Operands& operands, const Divisor<typename Format::Lane>& divisor,
                                     std::size_t begin, std::size_t end) {
  using Element = typename Format::Element;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    auto v = Format::Load(d, static_cast<const Element*>(operands.srcs[0]) + i);
    for (std::size_t s = 1; s < operands.num_srcs; ++s) {
      v = Op::Combine(d, v, Format::Load(d, static_cast<const Element*>(operands.srcs[s]) + i));
    }
    v = divisor.Apply(d, v);
    for (std::size_t k = 0; k < operands.num_dsts; ++k) {
      Format::template Store<false>(d, v, static_cast<Element*>(operands.dsts[k]) + i);
    }
  }
  return i;
}

// Reduces four vectors at a time: every source is read once and every destination written once. kSrcs is the number of
// sources when it is known at compile time, else 0.
template <class Format, class Op, std::size_t kSrcs, bool kStream, class D>
HWY_INLINE std::size_t ReduceTiles(D d, const Operands& operands, const Divisor<typename Format::Lane>& divisor,
                                   std::size_t begin, std::size_t end) {
  using Element = typename Format::Element;
  const std::size_t lanes = hn::Lanes(d);
  // Local copies of the lists: stores might alias the caller's lists, which would then be read again for every tile.
  const void* local[kSrcs == 0 ? 1 : kSrcs];
  if constexpr (kSrcs != 0) std::copy_n(operands.srcs, kSrcs, local);
  const void* const* const srcs = kSrcs != 0 ? local : operands.srcs;
  const std::size_t num_srcs = kSrcs != 0 ? kSrcs : operands.num_srcs;
  std::size_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    const Element* src = static_cast<const Element*>(srcs[0]) + i;
    auto v0 = Format::Load(d, src);
    auto v1 = Format::Load(d, src + lanes);
    auto v2 = Format::Load(d, src + 2 * lanes);
    auto v3 = Format::Load(d, src + 3 * lanes);
    for (std::size_t s = 1; s < num_srcs; ++s) {
      src = static_cast<const Element*>(srcs[s]) + i;
      v0 = Op::Combine(d, v0, Format::Load(d, src));
      v1 = Op::Combine(d, v1, Format::Load(d, src + lanes));
      v2 = Op::Combine(d, v2, Format::Load(d, src + 2 * lanes));
      v3 = Op::Combine(d, v3, Format::Load(d, src + 3 * lanes));
    }
    v0 = divisor.Apply(d, v0);
    v1 = divisor.Apply(d, v1);
    v2 = divisor.Apply(d, v2);
    v3 = divisor.Apply(d, v3);
    for (std::size_t k = 0; k < operands.num_dsts; ++k) {
      Element* dst = static_cast<Element*>(operands.dsts[k]) + i;
      Format::template Store<kStream>(d, v0, dst);
      Format::template Store<kStream>(d, v1, dst + lanes);
      Format::template Store<kStream>(d, v2, dst + 2 * lanes);
      Format::template Store<kStream>(d, v3, dst + 3 * lanes);
    }
  }
  return i;
}

template <class Format, class Op, bool kStream, class D>
HWY_INLINE std::size_t ReduceTilesOf(D d, const Operands& operands, const Divisor<typename Format::Lane>& divisor,
                                     std::size_t begin, std::size_t end) {
  if (operands.num_srcs == 2) return ReduceTiles<Format, Op, 2, kStream>(d, operands, divisor, begin, end);
  return ReduceTiles<Format, Op, 0, kStream>(d, operands, divisor, begin, end);
}

// The number of elements before the first at which every destination is aligned to `bytes`; count when there is none,
// as where the address of a destination is no multiple of the element's size.
template <typename Element>
std::size_t HeadUntilAligned(const Operands& operands, std::size_t bytes) {
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(operands.dsts[0]) % bytes;
  if (offset % sizeof(Element) != 0) return operands.count;
  for (std::size_t k = 1; k < operands.num_dsts; ++k) {
    if (reinterpret_cast<std::uintptr_t>(operands.dsts[k]) % bytes != offset) return operands.count;
  }
  return (bytes - offset) % bytes / sizeof(Element);
}

template <class Format, class Op>
HWY_NOINLINE void ReduceAll(const Operands& operands, bool streaming) {
  using Element = typename Format::Element;
  const hn::ScalableTag<typename Format::Lane> d;
  const hn::CappedTag<typename Format::Lane, 1> one;
  const Divisor<typename Format::Lane> divisor(operands.divisor);
  const std::size_t count = operands.count;
  std::size_t i = 0;
  const std::size_t bytes = hn::Lanes(d) * sizeof(Element);
  if (streaming && bytes >= kMinStreamedBytes) {
    const std::size_t head = HeadUntilAligned<Element>(operands, bytes);
    if (head < count) {
      i = ReduceSingles<Format, Op>(one, operands, divisor, 0, head);
      i = ReduceTilesOf<Format, Op, true>(d, operands, divisor, i, count);
      hwy::FlushStream();
    }
  }
  i = ReduceTilesOf<Format, Op, false>(d, operands, divisor, i, count);
  i = ReduceSingles<Format, Op>(d, operands, divisor, i, count);
  ReduceSingles<Format, Op>(one, operands, divisor, i, count);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_REDUCE_FLOATING_INL_H_
