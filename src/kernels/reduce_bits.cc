#include "kernels/reduce_bits.h"

#include <cstddef>

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_bits.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct And {
  template <class V>
  static HWY_INLINE V Combine(V a, V b) {
    return hn::And(a, b);
  }
};

struct Or {
  template <class V>
  static HWY_INLINE V Combine(V a, V b) {
    return hn::Or(a, b);
  }
};

struct Xor {
  template <class V>
  static HWY_INLINE V Combine(V a, V b) {
    return hn::Xor(a, b);
  }
};

// The bytes at `from + at`, as they are or, with `kTruths`, as bools: 1 for every byte that is not 0.
template <bool kTruths, class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const void* from, std::size_t at) {
  const auto bytes = hn::LoadU(d, static_cast<const std::uint8_t*>(from) + at);
  if constexpr (kTruths) return hn::Min(bytes, hn::Set(d, std::uint8_t{1}));
  return bytes;
}

// Reduces whole vectors of `d` in [begin, bytes); returns where it stopped.
template <class Op, bool kTruths, class D>
HWY_INLINE std::size_t ReduceVectors(D d, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                                     std::size_t begin, std::size_t bytes) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = begin;
  for (; i + lanes <= bytes; i += lanes) {
    auto v = LoadBytes<kTruths>(d, srcs[0], i);
    for (std::size_t s = 1; s < srcs.size(); ++s) v = Op::Combine(v, LoadBytes<kTruths>(d, srcs[s], i));
    for (void* dst : dsts) hn::StoreU(v, d, static_cast<std::uint8_t*>(dst) + i);
  }
  return i;
}

template <class Op>
void ReduceBytes(bool truths, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const hn::CappedTag<std::uint8_t, 1> one;
  if (truths) {
    const std::size_t done = ReduceVectors<Op, true>(d, dsts, srcs, 0, bytes);
    ReduceVectors<Op, true>(one, dsts, srcs, done, bytes);
  } else {
    const std::size_t done = ReduceVectors<Op, false>(d, dsts, srcs, 0, bytes);
    ReduceVectors<Op, false>(one, dsts, srcs, done, bytes);
  }
}

void ReduceBytesHere(ReduceOp op, bool truths, absl::Span<void* const> dsts, absl::Span<const void* const> srcs,
                     std::size_t bytes) {
  if (op == ReduceOp::kBitwiseAnd) return ReduceBytes<And>(truths, dsts, srcs, bytes);
  if (op == ReduceOp::kBitwiseOr) return ReduceBytes<Or>(truths, dsts, srcs, bytes);
  ReduceBytes<Xor>(truths, dsts, srcs, bytes);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(ReduceBytesHere);

void ReduceBits(ReduceOp op, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t bytes) {
  HWY_DYNAMIC_DISPATCH(ReduceBytesHere)(op, /*truths=*/false, dsts, srcs, static_cast<std::size_t>(bytes));
}

void ReduceTruths(ReduceOp op, absl::Span<void* const> dsts, absl::Span<const void* const> srcs, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(ReduceBytesHere)(OnTruths(op), /*truths=*/true, dsts, srcs, static_cast<std::size_t>(count));
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
