#include "tutti/dtype.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/name_of.h"

namespace tutti {

absl::string_view Name(DType dtype) {
  static constexpr std::array<absl::string_view, kAllDTypes.size()> kNames = {
      "f32", "f64", "f16", "bf16", "i8",  "u8",   "i32",      "i64",   "bool",
      "i16", "u16", "u32", "u64",  "c64", "c128", "f8e4m3fn", "f8e5m2"};
  return NameOf(kNames, dtype);
}

absl::string_view Name(ReduceOp op) {
  static constexpr std::array<absl::string_view, kAllReduceOps.size()> kNames = {
      "sum", "avg", "min", "max", "prod", "band", "bor", "bxor", "premul_sum"};
  return NameOf(kNames, op);
}

absl::Status CheckOp(DType dtype, ReduceOp op) {
  if (HasOp(dtype, op)) return absl::OkStatus();
  std::vector<absl::string_view> valid;
  for (const ReduceOp other : kAllReduceOps) {
    if (HasOp(dtype, other)) valid.push_back(Name(other));
  }
  const std::string refused = absl::StrCat("op ", Name(op), " is not defined for ", Name(dtype));
  if (valid.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        refused, ", which can be moved (all_gather, broadcast, send …) but not reduced: reduce in f32, f16 or bf16"));
  }
  const absl::string_view hint =
      dtype == DType::kBool && op == ReduceOp::kAvg ? "; for the share of ranks that are true, average f32" : "";
  return absl::InvalidArgumentError(
      absl::StrCat(refused, "; valid for ", Name(dtype), ": ", absl::StrJoin(valid, ", "), hint));
}

absl::StatusOr<DType> ParseDType(absl::string_view name) { return ParseName(kAllDTypes, "dtype", name); }
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) { return ParseName(kAllReduceOps, "op", name); }

}  // namespace tutti
