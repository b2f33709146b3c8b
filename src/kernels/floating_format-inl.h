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

// A format has the stored Element, the Lane in which it is computed, Load, and Store (kStream: past the cache; the
// address is then aligned to the vector).
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

  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<std::uint32_t, D> du32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, hn::LoadU(du16, from))));
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(HWY_MAYBE_UNUSED D d, hn::Vec<D> v, Element* to) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<std::uint32_t, D> du32;
    const auto bits = hn::BitCast(du32, v);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(upper, hn::Set(du32, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFF))));
    const auto nan = hn::RebindMask(du32, hn::IsNaN(v));
    const auto result = hn::IfThenElse(nan, hn::Or(upper, hn::Set(du32, 0x40)), rounded);
    NativeFormat<Element>::Store<kStream>(du16, hn::TruncateTo(du16, result), to);
  }
};

struct Float16Format {
  using Element = std::uint16_t;
  using Lane = float;

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)
  // Highway's conversion without F16C does not round to nearest even.
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = FloatFromFloat16(from[i]);
    return hn::Load(d, lanes);
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(HWY_MAYBE_UNUSED D d, hn::Vec<D> v, Element* to) {
    HWY_ALIGN float lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = Float16FromFloat(lanes[i]);
  }
#else
  template <class D>
  static HWY_INLINE hn::Vec<D> Load(D d, const Element* from) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(du16, from)));
  }
  template <bool kStream, class D>
  static HWY_INLINE void Store(D, hn::Vec<D> v, Element* to) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<hwy::float16_t, D> df16;
    NativeFormat<Element>::Store<kStream>(du16, hn::BitCast(du16, hn::DemoteTo(df16, v)), to);
  }
#endif
};

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_FLOATING_FORMAT_INL_H_
