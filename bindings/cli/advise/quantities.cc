#include "bindings/cli/advise/quantities.h"

#include <cmath>
#include <cstddef>

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
  absl::string_view rest = text;
  double unit = 1.0 / 8;
  (void)absl::ConsumeSuffix(&rest, "/s");
  if (absl::ConsumeSuffix(&rest, "B")) {
    unit = 1;
  } else {
    (void)absl::ConsumeSuffix(&rest, "bit");
  }
  double value = 0;
  if (ParseThousands(rest, value)) return value * unit;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no rate; write bits per second as 100M, 1G or 25Gbit, bytes per second as 125MB or 3GB"));
}

absl::StatusOr<std::int64_t> ParseCount(absl::string_view text) {
  std::string thousands(text);
  if (!thousands.empty() && thousands.back() == 'B') thousands.back() = 'G';
  constexpr double kMost = 1e15;
  double value = 0;
  if (ParseThousands(thousands, value) && value >= 1 && value <= kMost) return std::llround(value);
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
