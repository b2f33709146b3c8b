#include "bindings/cli/advise/quantities.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tutti::cli {
namespace {

// Parses a number above 0 with a letter for its thousands, "20M".
bool ParseThousands(absl::string_view text, double& value) {
  constexpr absl::string_view kLetters = "KMGT";
  double unit = 1;
  if (!text.empty()) {
    const char last = text.back() == 'k' ? 'K' : text.back();
    if (const std::size_t place = kLetters.find(last); place != absl::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(place + 1));
      text.remove_suffix(1);
    }
  }
  // No sign, space, exponent, inf or nan.
  if (text.find_first_not_of("0123456789.") != absl::string_view::npos || !absl::SimpleAtod(text, &value)) return false;
  value *= unit;
  return value > 0;
}

}  // namespace

absl::StatusOr<double> ParseRate(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const absl::string_view number = text.substr(0, digits);
  absl::string_view unit = absl::StripLeadingAsciiWhitespace(text.substr(digits));
  const bool has_unit = !unit.empty();
  const bool per_second = absl::ConsumeSuffix(&unit, "/s") || absl::ConsumeSuffix(&unit, "ps");
  double bytes = 1.0 / 8;
  const bool is_bits = absl::EndsWithIgnoreCase(unit, "bit");
  if (is_bits) {
    unit.remove_suffix(3);
  } else if (absl::ConsumeSuffix(&unit, "B")) {
    bytes = 1;
  } else if (!absl::ConsumeSuffix(&unit, "b") && per_second && unit.empty()) {
    unit = "?";  // "100/s" of what?
  }
  // The letter of thousands is left; bits and bytes themselves have none.
  double value = 0;
  const bool is_letter = unit.empty() || (unit.size() == 1 && absl::StrContains("kKmMgGtT", unit));
  if (has_unit && is_letter && ParseThousands(absl::StrCat(number, absl::AsciiStrToUpper(unit)), value)) {
    return value * bytes;
  }
  constexpr absl::string_view kExamples =
      "write bits per second as 100M, 1G, 25Gbit or 100Mb/s, bytes per second, with a capital B, as 125MB or 3GB/s";
  if (has_unit || !ParseThousands(number, value)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no rate; ", kExamples));
  }
  constexpr double kMaxMegabits = 100'000;  // a larger number was hardly meant as megabits
  const std::string guess = value < kMaxMegabits ? absl::StrCat(": ", text, "M would be megabits per second") : "";
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' has no unit", guess, "; ", kExamples));
}

absl::StatusOr<std::int64_t> ParseCount(absl::string_view text) {
  std::string thousands(text);
  if (!thousands.empty() && thousands.back() == 'B') thousands.back() = 'G';
  constexpr double kMax = 1e15;
  double value = 0;
  if (ParseThousands(thousands, value) && value >= 1 && value <= kMax) return std::llround(value);
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no count from 1 to 1e15; write it as 350000, 350K, 20M or 1.5B"));
}

absl::StatusOr<absl::Duration> ParseDelay(absl::string_view text) {
  absl::Duration delay;
  if (absl::ParseDuration(text, &delay) && delay >= absl::ZeroDuration() && delay <= absl::Hours(1)) return delay;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no time up to 1h; write it as 50us or 2ms"));
}

std::string FormatRate(double bytes_per_s) {
  const double bits = bytes_per_s * 8;
  return bits < 1e9 ? absl::StrCat(bits / 1e6, " Mbit/s") : absl::StrCat(bits / 1e9, " Gbit/s");
}

}  // namespace tutti::cli
