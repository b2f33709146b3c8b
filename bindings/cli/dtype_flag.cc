#include "bindings/cli/dtype_flag.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tutti::cli {
namespace {

// Words for one type.
constexpr std::pair<absl::string_view, absl::string_view> kWords[] = {
    {"float", "f32"},         {"single", "f32"},
    {"double", "f64"},        {"half", "f16"},
    {"int", "i32"},           {"long", "i64"},
    {"char", "i8"},           {"byte", "u8"},
    {"f8e4m3", "f8e4m3fn"},   {"float8_e4m3fn", "f8e4m3fn"},
    {"float8_e5m2", "f8e5m2"}};

// Words before a number of bits: float32, fp32.
constexpr std::pair<absl::string_view, absl::string_view> kBeginnings[] = {
    {"bfloat", "bf"}, {"float", "f"}, {"fp", "f"}, {"uint", "u"}, {"int", "i"}, {"complex", "c"}};

std::string OwnNameOf(absl::string_view name) {
  for (const auto& [word, own] : kWords) {
    if (name == word) return std::string(own);
  }
  for (const auto& [beginning, own] : kBeginnings) {
    if (absl::string_view bits = name; absl::ConsumePrefix(&bits, beginning)) return absl::StrCat(own, bits);
  }
  return std::string(name);
}

}  // namespace

absl::StatusOr<DType> ParseDTypeFlag(absl::string_view name) {
  absl::StatusOr<DType> type = ParseDType(name);
  const std::string own_name = OwnNameOf(name);
  if (type.ok() || !ParseDType(own_name).ok()) return type;
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype '", name, "'; did you mean ", own_name, "?"));
}

}  // namespace tutti::cli
