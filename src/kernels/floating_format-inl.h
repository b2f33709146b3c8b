// Loads and stores of each floating dtype, from and to vectors of the type in which it is computed. Included once per
// instruction set.
#if defined(TUTTI_KERNELS_FLOATING_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_FLOATING_FORMAT_INL_H_
#undef TUTTI_KERNELS_FLOATING_FORMAT_INL_H_
#else
#define TUTTI_KERNELS_FLOATING_FORMAT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/float16.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The fewest bytes of a vector that may be stored past the cache: hn::Stream stores a shorter one as so many bytes, at
// an address that is no multiple of them.
inline constexpr std::size_t kMinStreamedBytes = 16;

// A format has the stored Element, the Lane in which it is computed, Load, and Store (kStream: past the cache; the
// address is then aligned to the vector, which has kMinStreamedBytes or more). Those of 16 bits also have Widened and
// Narrowed, from and to elements in registers, and the same of one element.
template <typename T>
struct NativeFormat {
  using Element = T;
  using Lane = T;

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    return hn::LoadU(d, from);
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(HWY_MAYBE_UNUSED D d, hn::Vec<D> v, Element* to) {
    if constexpr (kStream) {
      hn::Stream(v, d, to);
    } else {
      hn::StoreU(v, d, to);
    }
  }
};

struct BFloat16Format {
  using Element = std::uint16_t;
  using Lane = float;

  static float WidenedOne(Element element) { return FloatFromBFloat16(element); }
  static Element NarrowedOne(float value) { return BFloat16FromFloat(value); }

  template <class D>
  static HWY_INLINE hn::Vec<D> Widened(D d, hn::Vec<hn::Rebind<Element, D>> elements) {
    const hn::Rebind<std::uint32_t, D> du32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, elements)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, D>> Narrowed(D, hn::Vec<D> v) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<std::uint32_t, D> du32;
    const auto bits = hn::BitCast(du32, v);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(du32, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFF))));
    const auto nan = hn::RebindMask(du32, hn::IsNaN(v));
    const auto result = hn::IfThenElse(nan, hn::Or(upper, hn::Set(du32, 0x40)), rounded);
    return hn::TruncateTo(du16, result);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    return Widened(d, hn::LoadU(hn::Rebind<std::uint16_t, D>(), from));
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, Element* to) {
    NativeFormat<Element>::Store<kStream>(hn::Rebind<std::uint16_t, D>(), Narrowed(d, v), to);
  }
};

struct Float16Format {
  using Element = std::uint16_t;
  using Lane = float;

  static float WidenedOne(Element element) { return FloatFromFloat16(element); }
  static Element NarrowedOne(float value) { return Float16FromFloat(value); }

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
  // Highway's conversion without F16C does not round to nearest even.
  template <class D>
  static HWY_INLINE hn::Vec<D> Widened(D d, hn::Vec<hn::Rebind<Element, D>> elements) {
    HWY_ALIGN Element from[hn::MaxLanes(D())];
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(elements, hn::Rebind<Element, D>(), from);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = WidenedOne(from[i]);
    return hn::Load(d, lanes);
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, D>> Narrowed(D d, hn::Vec<D> v) {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    HWY_ALIGN Element to[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = NarrowedOne(lanes[i]);
    return hn::Load(hn::Rebind<Element, D>(), to);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> Widened(D d, hn::Vec<hn::Rebind<Element, D>> elements) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), elements));
  }
  template <class D>
  static HWY_INLINE hn::Vec<hn::Rebind<Element, D>> Narrowed(D, hn::Vec<D> v) {
    return hn::BitCast(hn::Rebind<Element, D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
  }
#endif
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    return Widened(d, hn::LoadU(hn::Rebind<Element, D>(), from));
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(D d, hn::Vec<D> v, Element* to) {
    NativeFormat<Element>::Store<kStream>(hn::Rebind<Element, D>(), Narrowed(d, v), to);
  }
};

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_FLOATING_FORMAT_INL_H_
