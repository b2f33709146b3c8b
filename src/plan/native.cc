#include "tutti/native.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tutti/plan.h"

namespace tutti {

NativeCollectives CollectivesOfNccl() {
  NativeCollectives native;
  for (const Collective collective : kAllCollectives) {
    if (HasNativeForm(collective)) native.collectives.push_back(collective);
  }
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8, DType::kU8, DType::kI32,
                            DType::kI64, DType::kU32, DType::kU64}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
      // NCCL takes the other operand where one is NaN.
      const bool drops_nan = IsFloating(dtype) && (op == ReduceOp::kMin || op == ReduceOp::kMax);
      if (!drops_nan) native.reductions.push_back({dtype, op});
    }
  }
  return native;
}

absl::Status CheckNative(const NativeCollectives& native, const CollectiveSpec& spec) {
  if (native.collectives.empty()) {
    return absl::UnimplementedError("no native collectives here: NCCL has them, on memory of GPUs");
  }
  const std::vector<Collective>& collectives = native.collectives;
  if (std::find(collectives.begin(), collectives.end(), spec.collective) == collectives.end()) {
    return absl::UnimplementedError(
        absl::StrCat("the native transport does not perform ", Name(spec.collective), " as a whole"));
  }
  const NativeCollectives::Reduction reduction{spec.dtype, spec.op == ReduceOp::kPremulSum ? ReduceOp::kSum : spec.op};
  const std::vector<NativeCollectives::Reduction>& reductions = native.reductions;
  if (Reduces(spec.collective) && std::find(reductions.begin(), reductions.end(), reduction) == reductions.end()) {
    return absl::UnimplementedError(absl::StrCat("the native transport does not reduce ", Name(spec.dtype), " with op ",
                                                 Name(reduction.op), " as Tutti promises"));
  }
  return absl::OkStatus();
}

bool HasNativeForm(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll:
      return true;
    default:
      return false;
  }
}

int NativeSizeOf(const Plan& plan, const Step& step) {
  return step.group == 0 ? plan.size : static_cast<int>(plan.group_of(step).size());
}

int NativePlaceOf(const Plan& plan, const Step& step, Rank rank) {
  if (step.group == 0) return rank >= 0 && rank < plan.size ? rank : -1;
  const absl::Span<const Rank> group = plan.group_of(step);
  const auto place = std::find(group.begin(), group.end(), rank);
  return place == group.end() ? -1 : static_cast<int>(place - group.begin());
}

CollectiveSpec NativeSpecOf(const Plan& plan, const Step& step) {
  const std::int64_t in = step.num_srcs > 0 ? plan.srcs(step)[0].count() : 0;
  const std::int64_t out = step.num_dsts > 0 ? plan.dsts(step)[0].count() : 0;
  CollectiveSpec spec{
      .collective = step.collective, .dtype = plan.refs[step.first_ref].dtype, .op = step.op, .count = in};
  if (HasRoot(step.collective)) spec.root = NativePlaceOf(plan, step, step.peer);
  switch (step.collective) {
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
    case Collective::kScatter:
      spec.count = out;
      break;
    case Collective::kAllToAll:
      spec.count = in / NativeSizeOf(plan, step);
      break;
    default:
      break;
  }
  return spec;
}

std::int64_t NativeBytes(const CollectiveSpec& spec, Rank place, int size) {
  const std::int64_t bytes = spec.count * SizeOf(spec.dtype);
  switch (spec.collective) {
    case Collective::kAllReduce:
      return 2 * (bytes - bytes / size);
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return (size - 1) * bytes;
    case Collective::kGather:
    case Collective::kScatter:
      return place == spec.root ? (size - 1) * bytes : bytes;
    default:
      return bytes;
  }
}

std::int64_t NativeBytes(const Plan& plan, const Step& step) {
  return NativeBytes(NativeSpecOf(plan, step), NativePlaceOf(plan, step, plan.rank), NativeSizeOf(plan, step));
}

}  // namespace tutti
