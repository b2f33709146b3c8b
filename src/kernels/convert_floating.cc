#include "kernels/convert_floating.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_floating.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/floating_format-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class To, class From, bool kStream, class D>
HWY_INLINE std::size_t ConvertVectors(D d, typename To::Element* dst, const typename From::Element* src,
                                      std::size_t begin, std::size_t end) {
  std::size_t i = begin;
  for (; i + hn::Lanes(d) <= end; i += hn::Lanes(d)) To::template Store<kStream>(d, From::Load(d, src + i), dst + i);
  return i;
}

template <class To, class From>
void ConvertAll(void* to, const void* from, std::size_t count, bool streaming) {
  const hn::ScalableTag<typename To::Lane> d;
  const hn::CappedTag<typename To::Lane, 1> one;
  auto* const dst = static_cast<typename To::Element*>(to);
  const auto* const src = static_cast<const typename From::Element*>(from);
  std::size_t i = 0;
  const std::size_t bytes = hn::Lanes(d) * sizeof(*dst);
  if (streaming && bytes >= kMinStreamedBytes) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(dst) % bytes;
    const std::size_t head = (bytes - misaligned) % bytes / sizeof(*dst);
    // Where the address is no multiple of the element's size, no element is aligned to the vector.
    if (misaligned % sizeof(*dst) == 0 && head < count) {
      i = ConvertVectors<To, From, false>(one, dst, src, 0, head);
      i = ConvertVectors<To, From, true>(d, dst, src, i, count);
      hwy::FlushStream();
    }
  }
  i = ConvertVectors<To, From, false>(d, dst, src, i, count);
  ConvertVectors<To, From, false>(one, dst, src, i, count);
}

void ConvertFloatingHere(DType dst_type, void* dst, DType src_type, const void* src, std::size_t count,
                         bool streaming) {
  using Float32Format = NativeFormat<float>;
  const bool to_f16 = dst_type == DType::kF16;
  if (src_type == DType::kF32) {
    if (to_f16) return ConvertAll<Float16Format, Float32Format>(dst, src, count, streaming);
    return ConvertAll<BFloat16Format, Float32Format>(dst, src, count, streaming);
  }
  if (dst_type == DType::kF32) {
    if (src_type == DType::kF16) return ConvertAll<Float32Format, Float16Format>(dst, src, count, streaming);
    return ConvertAll<Float32Format, BFloat16Format>(dst, src, count, streaming);
  }
  if (to_f16) return ConvertAll<Float16Format, BFloat16Format>(dst, src, count, streaming);
  ConvertAll<BFloat16Format, Float16Format>(dst, src, count, streaming);
}

void CopyStreamingHere(std::int64_t element_bytes, void* dst, const void* src, std::size_t count) {
  using Bytes1 = NativeFormat<std::uint8_t>;
  using Bytes2 = NativeFormat<std::uint16_t>;
  using Bytes4 = NativeFormat<std::uint32_t>;
  using Bytes8 = NativeFormat<std::uint64_t>;
  if (element_bytes == 1) return ConvertAll<Bytes1, Bytes1>(dst, src, count, true);
  if (element_bytes == 2) return ConvertAll<Bytes2, Bytes2>(dst, src, count, true);
  if (element_bytes == 4) return ConvertAll<Bytes4, Bytes4>(dst, src, count, true);
  ConvertAll<Bytes8, Bytes8>(dst, src, count, true);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(ConvertFloatingHere);
HWY_EXPORT(CopyStreamingHere);

void ConvertFloating(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count, Stores stores) {
  HWY_DYNAMIC_DISPATCH(ConvertFloatingHere)
  (dst_type, dst, src_type, src, static_cast<std::size_t>(count), stores == Stores::kStreaming);
}

void CopyStreaming(DType dtype, void* dst, const void* src, std::int64_t count) {
  const std::int64_t parts = IsComplex(dtype) ? 2 : 1;
  HWY_DYNAMIC_DISPATCH(CopyStreamingHere)
  (SizeOf(dtype) / parts, dst, src, static_cast<std::size_t>(parts * count));
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
