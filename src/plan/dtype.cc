#include "tutti/dtype.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/name_of.h"

namespace tutti {
namespace {

template <typename T, std::size_t N>
absl::StatusOr<T> ParseName(const std::array<T, N>& all, absl::string_view what, absl::string_view name) {
  for (T value : all) {
    if (Name(value) == name) return value;
  }
  const std::string valid =
      absl::StrJoin(all, ", ", [](std::string* out, T value) { absl::StrAppend(out, Name(value)); });
  return absl::InvalidArgumentError(absl::StrCat("unknown ", what, " '", name, "'; valid: ", valid));
}

}  // namespace

absl::string_view Name(DType dtype) {
  static constexpr std::array<absl::string_view, 8> kNames = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};
  return NameOf(kNames, dtype);
}

absl::string_view Name(ReduceOp op) {
  static constexpr std::array<absl::string_view, 5> kNames = {"sum", "avg", "min", "max", "prod"};
  return NameOf(kNames, op);
}

absl::StatusOr<DType> ParseDType(absl::string_view name) { return ParseName(kAllDTypes, "dtype", name); }
absl::StatusOr<ReduceOp> ParseReduceOp(absl::string_view name) { return ParseName(kAllReduceOps, "op", name); }

}  // namespace tutti
