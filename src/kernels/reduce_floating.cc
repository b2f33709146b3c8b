#include "kernels/reduce_floating.h"

#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/reduce_floating.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/reduce_floating-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

template <class Format>
void ReduceFormat(ReduceOp op, const Operands& operands, bool streaming) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      return ReduceAll<Format, Sum>(operands, streaming);
    case ReduceOp::kMin:
      return ReduceAll<Format, Minimum>(operands, streaming);
    case ReduceOp::kMax:
      return ReduceAll<Format, Maximum>(operands, streaming);
    case ReduceOp::kProd:
      return ReduceAll<Format, Product>(operands, streaming);
    case ReduceOp::kBitwiseAnd:
    case ReduceOp::kBitwiseOr:
    case ReduceOp::kBitwiseXor:
    case ReduceOp::kPremulSum:
      return;  // refused by the contract of Reduce
  }
}

void ReduceFloatingHere(DType dtype, ReduceOp op, const Operands& operands, bool streaming) {
  if (dtype == DType::kF32) return ReduceFormat<NativeFormat<float>>(op, operands, streaming);
  if (dtype == DType::kF64) return ReduceFormat<NativeFormat<double>>(op, operands, streaming);
  if (dtype == DType::kF16) return ReduceFormat<Float16Format>(op, operands, streaming);
  ReduceFormat<BFloat16Format>(op, operands, streaming);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(ReduceFloatingHere);

void ReduceFloating(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<void* const> dsts,
                    absl::Span<const void* const> srcs, std::int64_t count, Stores stores) {
  const Operands operands = {dsts.data(),
                             dsts.size(),
                             srcs.data(),
                             srcs.size(),
                             static_cast<std::size_t>(count),
                             op == ReduceOp::kAvg ? divisor : 1};
  HWY_DYNAMIC_DISPATCH(ReduceFloatingHere)(dtype, op, operands, stores == Stores::kStreaming);
}

}  // namespace tutti::kernels
#endif  // HWY_ONCE
