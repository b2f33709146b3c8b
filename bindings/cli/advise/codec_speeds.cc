#include "bindings/cli/advise/codec_speeds.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

// The case of bench/kernels/codec_bench.cc that measures what the step does.
std::string CaseOf(const Plan& plan, const Step& step) {
  constexpr char kElementsOutOfCache[] = "16777216";
  const char* const direction = step.kind == StepKind::kEncode ? "Encode" : step.accumulate ? "Accumulate" : "Decode";
  return absl::StrCat(direction, "/", ToString(plan.codecs[step.codec]), "/", kElementsOutOfCache);
}

}  // namespace

absl::StatusOr<double> CodecSeconds(const Plan& plan, const Step& step) {
  static const Json& measured = *new Json(Json::parse(MeasuredCodecs()));
  const std::string name = CaseOf(plan, step);
  const auto found = measured.find(name);
  if (found == measured.end()) {
    return absl::NotFoundError(absl::StrCat("docs/results/codecs.json has no speed of ", name,
                                            ", which bench/kernels/codecs.py would measure"));
  }
  const Ref& elements = step.kind == StepKind::kEncode ? plan.srcs(step)[0] : plan.dsts(step)[0];
  const double fp32_bytes = 4 * static_cast<double>(elements.count());
  return fp32_bytes / (found->at("gb_s").get<double>() * 1e9);
}

}  // namespace tutti::cli
