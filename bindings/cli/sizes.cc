#include "bindings/cli/sizes.h"

#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tutti::cli {
namespace {

constexpr absl::string_view kUnits = "KMGT";

}  // namespace

absl::StatusOr<std::int64_t> ParseBytes(absl::string_view text) {
  absl::string_view digits = text;
  int shift = 0;
  // "64Ki" and "64KiB" say the same as "64K"; "64KB" could mean 64,000 bytes.
  if (!absl::ConsumeSuffix(&digits, "iB")) (void)absl::ConsumeSuffix(&digits, "i");
  const bool has_suffix = digits.size() < text.size();
  const std::size_t unit = digits.empty() ? absl::string_view::npos
                                          : kUnits.find(absl::ascii_toupper(static_cast<unsigned char>(digits.back())));
  if (unit != absl::string_view::npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    digits.remove_suffix(1);
  }
  std::int64_t value = 0;
  // True for signs and spaces, too.
  const bool has_other =
      digits.find_first_not_of("0123456789") != absl::string_view::npos || (has_suffix && shift == 0);
  if (has_other || !absl::SimpleAtoi(digits, &value) || value > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no size; write bytes as 4, 1K (1024), 256M or 1G, or as 1KiB"));
  }
  return value << shift;
}

std::string FormatBytes(std::int64_t bytes) {
  std::string unit;
  for (std::size_t i = 0; i < kUnits.size() && bytes >= 1024 && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    unit = kUnits[i];
  }
  return absl::StrCat(bytes, unit);
}

}  // namespace tutti::cli
