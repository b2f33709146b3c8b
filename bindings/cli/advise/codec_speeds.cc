#include "bindings/cli/advise/codec_speeds.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

// The cases of bench/kernels/codec_bench.cc that measure what the step does; the number of elements is missing.
std::string CasesOf(const Plan& plan, const Step& step) {
  const char* const direction = step.kind == StepKind::kEncode ? "Encode" : step.accumulate ? "Accumulate" : "Decode";
  return absl::StrCat(direction, "/", ToString(plan.codecs[step.codec]), "/");
}

}  // namespace

absl::StatusOr<double> CodecSeconds(const Plan& plan, const Step& step, double copy_bytes_per_s) {
  constexpr char kElementsInCache[] = "16384";
  constexpr char kElementsOutOfCache[] = "16777216";
  static const Json& measured = *new Json(Json::parse(MeasuredCodecs()));
  const std::string cases = CasesOf(plan, step);
  const auto in_cache = measured.find(cases + kElementsInCache);
  const auto out_of_cache = measured.find(cases + kElementsOutOfCache);
  if (in_cache == measured.end() || out_of_cache == measured.end()) {
    return absl::NotFoundError(absl::StrCat("docs/results/codecs.json has no speed of ", cases, kElementsInCache,
                                            " or ", kElementsOutOfCache,
                                            ", which bench/kernels/codecs.py would measure"));
  }
  const double arithmetic_bytes_per_s = in_cache->at("gb_s").get<double>() * 1e9;
  const double memcpy_bytes_per_s = copy_bytes_per_s / 2;  // memcpy reads as many bytes as it writes
  const double memory_bytes_per_s = out_of_cache->at("memcpy").get<double>() * memcpy_bytes_per_s;
  const Ref& elements = step.kind == StepKind::kEncode ? plan.srcs(step)[0] : plan.dsts(step)[0];
  const double fp32_bytes = 4 * static_cast<double>(elements.count());
  return fp32_bytes / std::min(arithmetic_bytes_per_s, memory_bytes_per_s);
}

}  // namespace tutti::cli
