#include "tutti/codec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/exactly.h"
#include "plan/registry.h"

namespace tutti {
namespace {

constexpr absl::string_view kOptionNames[] = {"block", "rounding", "seed", "rotation", "density"};

}  // namespace

absl::string_view Name(Rounding rounding) { return rounding == Rounding::kNearest ? "nearest" : "stochastic"; }

std::string OptionText(const CodecOptions& options, absl::string_view name) {
  if (name == "block") return absl::StrCat(options.block);
  if (name == "rounding") return std::string(Name(options.rounding));
  if (name == "seed") return absl::StrCat(options.seed);
  if (name == "rotation") return options.rotation ? "true" : "false";
  if (name == "density") return Exactly(options.density);
  return "";
}

std::string ToString(const CodecChoice& choice) {
  std::vector<std::string> set;
  for (const absl::string_view name : kOptionNames) {
    const std::string text = OptionText(choice.options, name);
    if (text != OptionText({}, name)) set.push_back(absl::StrCat(name, "=", text));
  }
  return absl::StrCat(choice.codec->name, set.empty() ? "" : ":", absl::StrJoin(set, ","));
}

absl::Status CheckTaken(absl::string_view codec, absl::string_view taken, const CodecOptions& options) {
  const std::vector<absl::string_view> valid = absl::StrSplit(taken, ", ");
  for (const absl::string_view name : kOptionNames) {
    const std::string text = OptionText(options, name);
    if (text == OptionText({}, name) || std::find(valid.begin(), valid.end(), name) != valid.end()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(codec, ": ", name, "=", text, " is not an option of this codec; valid options: ", taken));
  }
  return absl::OkStatus();
}

absl::StatusOr<const Codec*> FindCodec(absl::string_view name) {
  for (const Codec* codec : AllCodecs()) {
    if (codec->name == name) return codec;
  }
  const std::string valid =
      absl::StrJoin(AllCodecs(), ", ", [](std::string* out, const Codec* codec) { absl::StrAppend(out, codec->name); });
  return absl::NotFoundError(absl::StrCat("unknown codec '", name, "'; valid: ", valid, MissingExtension()));
}

}  // namespace tutti
