// The functions of random.h on vectors. Included once per instruction set.
#if defined(TUTTI_KERNELS_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_RANDOM_INL_H_
#undef TUTTI_KERNELS_RANDOM_INL_H_
#else
#define TUTTI_KERNELS_RANDOM_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "tutti/codecs/random.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// RandomWord(stream, index + lane) in every lane.
template <class DU32>
HWY_INLINE hn::Vec<DU32> RandomWords(DU32 d, RandomStream stream, std::size_t index) {
  auto word = hn::Add(hn::Iota(d, 0u), hn::Set(d, static_cast<std::uint32_t>(index) + stream.first));
  word = hn::Mul(hn::Xor(word, hn::ShiftRight<16>(word)), hn::Set(d, 0x21F0AAADu));
  word = hn::Xor(word, hn::Set(d, stream.second));
  word = hn::Mul(hn::Xor(word, hn::ShiftRight<15>(word)), hn::Set(d, 0xD35A2D97u));
  return hn::Xor(word, hn::ShiftRight<15>(word));
}

// UnitFromWord in every lane.
template <class D>
HWY_INLINE hn::Vec<D> UnitsFromWords(D d, hn::Vec<hn::RebindToUnsigned<D>> words) {
  const hn::RebindToSigned<D> di32;
  return hn::Mul(hn::ConvertTo(d, hn::BitCast(di32, hn::ShiftRight<8>(words))), hn::Set(d, 0x1p-24f));
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TUTTI_KERNELS_RANDOM_INL_H_
