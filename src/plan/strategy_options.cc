#include "plan/strategy_options.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plan/registry.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

absl::Status CheckCodec(const AlgorithmOption& option, absl::string_view value) {
  std::vector<absl::string_view> valid;
  if (option.default_value == "none") valid.push_back("none");
  for (const Codec* codec : AllCodecs()) valid.push_back(codec->name);
  if (std::find(valid.begin(), valid.end(), value) != valid.end()) return absl::OkStatus();
  return NotOneOf(option, value, absl::StrCat(absl::StrJoin(valid, ", "), MissingExtension()));
}

absl::Status CheckPowerOfTwoOrZero(const AlgorithmOption& option, absl::string_view value) {
  std::int64_t number = -1;
  if (absl::SimpleAtoi(value, &number) && number >= 0 && (number & (number - 1)) == 0) return absl::OkStatus();
  return NotOneOf(option, value, option.values);
}

absl::Status CheckUnsigned(const AlgorithmOption& option, absl::string_view value) {
  std::uint64_t number = 0;
  return absl::SimpleAtoi(value, &number) ? absl::OkStatus() : NotOneOf(option, value, option.values);
}

absl::Status CheckShare(const AlgorithmOption& option, absl::string_view value) {
  double number = 0;
  if (absl::SimpleAtod(value, &number) && number > 0 && number <= 1) return absl::OkStatus();
  return NotOneOf(option, value, option.values);
}

constexpr AlgorithmOption kTable[] = {
    {"block", "", "a power of two, or 0 for the whole message", "elements that share one range or choice",
     CheckPowerOfTwoOrZero},
    {"rounding", "", "nearest | stochastic", "stochastic: up or down at random, and right on average", CheckListed},
    {"seed", "", "a number from 0 on", "seed of the random numbers of rounding and rotation", CheckUnsigned},
    {"rotation", "", "true | false", "turn blocks at random before they are rounded (Hadamard), which spreads outliers",
     CheckListed},
    {"density", "", "a number above 0, up to 1", "share of the elements that travel", CheckShare},
};

void Set(CodecOptions& options, absl::string_view name, absl::string_view value) {
  if (name == "block") (void)absl::SimpleAtoi(value, &options.block);
  if (name == "rounding") options.rounding = value == "nearest" ? Rounding::kNearest : Rounding::kStochastic;
  if (name == "seed") (void)absl::SimpleAtoi(value, &options.seed);
  if (name == "rotation") options.rotation = value == "true";
  if (name == "density") (void)absl::SimpleAtod(value, &options.density);
}

std::vector<absl::string_view> TakenBy(const Codec& codec) { return absl::StrSplit(codec.options, ", "); }

}  // namespace

absl::Span<const AlgorithmOption> CodecOptionTable() { return kTable; }

absl::Status AppendCodecOptions(absl::Span<const absl::string_view> settings, std::vector<AlgorithmOption>& options,
                                Strategy& strategy) {
  const absl::string_view by_default = strategy.algorithm->codec;
  options.push_back({"codec", by_default, by_default == "none" ? "none, or a codec" : "a codec",
                     "how elements become bytes", CheckCodec});
  absl::string_view name = by_default;
  for (absl::string_view setting : settings) {
    if (absl::ConsumePrefix(&setting, "codec=")) name = setting;
  }
  if (absl::Status status = CheckCodec(options.back(), name); !status.ok()) return status;
  strategy.options.emplace_back("codec", name);
  if (name == "none") return absl::OkStatus();
  const Codec& codec = **FindCodec(name);
  const std::vector<absl::string_view> taken = TakenBy(codec);
  for (const AlgorithmOption& option : kTable) {
    if (std::find(taken.begin(), taken.end(), option.name) == taken.end()) continue;
    options.push_back(option);
    strategy.options.emplace_back(option.name, OptionText(codec.defaults, option.name));
  }
  return absl::OkStatus();
}

CodecChoice CodecOf(const Strategy& strategy) {
  if (!strategy.has("codec")) return {};  // an algorithm that never encodes
  const absl::StatusOr<const Codec*> codec = FindCodec(strategy.option("codec"));
  if (!codec.ok()) return {};  // "none"
  CodecChoice choice{*codec, (*codec)->defaults};
  for (const absl::string_view name : TakenBy(**codec)) {
    if (strategy.has(name)) Set(choice.options, name, strategy.option(name));
  }
  return choice;
}

}  // namespace tutti
