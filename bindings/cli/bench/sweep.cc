#include "bindings/cli/bench/sweep.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/bench/run.h"
#include "bindings/cli/dtype_flag.h"
#include "bindings/cli/traffic.h"
#include "tutti/codec.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

constexpr absl::string_view kAll = "all";
constexpr absl::string_view kNone = "none";

// The values that `text` names: `all` of them, or those whose names have commas between them.
template <typename T, typename Values, typename Parse>
absl::StatusOr<std::vector<T>> ParseNames(absl::string_view text, const Values& all, Parse parse) {
  if (text == kAll) return std::vector<T>(all.begin(), all.end());
  std::vector<T> values;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    if (name == kAll) return absl::InvalidArgumentError("all stands alone, without other names");
    absl::StatusOr<T> value = parse(name);
    if (!value.ok()) return value.status();
    if (std::find(values.begin(), values.end(), *value) == values.end()) values.push_back(*std::move(value));
  }
  return values;
}

Collective CollectiveOf(const std::string& name) {
  return ParseCollective(name).value_or(Collective::kSend);  // send_recv
}

// The collectives without those that "all" does not mean: a barrier has no memory of GPUs, and elements of some types
// can only be moved.
std::vector<std::string> CollectivesFor(const BenchSweep& sweep, const BenchOptions& options, DType dtype) {
  std::vector<std::string> names = sweep.collectives;
  if (names.size() == 1) return names;
  std::erase_if(names, [&](const std::string& name) {
    const Collective collective = CollectiveOf(name);
    return (collective == Collective::kBarrier && options.on_device()) ||
           (Reduces(collective) && !HasOp(dtype, ReduceOp::kSum));
  });
  return names;
}

// The schedules to measure with `codec`, whose sums have none.
std::vector<std::string> SchedulesFor(const BenchSweep& sweep, Collective collective, const std::string& codec) {
  if (sweep.schedules.front() != kAll) return sweep.schedules;
  if (codec != kNone) return {""};
  std::vector<std::string> names;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective == collective) names.emplace_back(schedule->name);
  }
  return names;
}

// Every combination, whether or not it can be measured.
std::vector<BenchOptions> CombinationsOf(const BenchSweep& sweep, const BenchOptions& options) {
  std::vector<BenchOptions> combinations;
  const std::vector<std::string> codecs = CodecsNamed(sweep.codecs);
  const auto add = [&](const std::string& name, DType dtype, ReduceOp op, const std::string& codec) {
    const std::vector<std::string> schedules = SchedulesFor(sweep, CollectiveOf(name), codec);
    for (const std::string& schedule : schedules) {
      BenchOptions one = options;
      one.collective = name;
      one.traffic.dtype = dtype;
      one.traffic.op = op;
      one.schedule = schedule;
      one.skips_unserved = sweep.schedules.front() == kAll || schedules.size() > 1;
      if (codec != kNone) {
        one.codec = codec;
        if (std::exchange(one.both_places, false)) one.traffic.in_place = true;  // such sums have no other place
      }
      combinations.push_back(std::move(one));
    }
  };
  for (const std::string& name : sweep.collectives) {
    for (const DType dtype : sweep.dtypes) {
      const std::vector<std::string> names = CollectivesFor(sweep, options, dtype);
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      for (const ReduceOp op : sweep.ops) {
        for (const std::string& codec : codecs) add(name, dtype, op, codec);
        if (!Reduces(CollectiveOf(name))) break;  // other operators are the same
      }
      if (CollectiveOf(name) == Collective::kBarrier) break;  // other types are the same
    }
  }
  return combinations;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseCollectives(absl::string_view text) {
  return ParseNames<std::string>(text, BenchNames(), ParseBenchName);
}

absl::StatusOr<std::vector<DType>> ParseDTypes(absl::string_view text) {
  return ParseNames<DType>(text, kAllDTypes, ParseDTypeFlag);
}

absl::StatusOr<std::vector<ReduceOp>> ParseReduceOps(absl::string_view text) {
  return ParseNames<ReduceOp>(text, kAllReduceOps, ParseReduceOp);
}

absl::StatusOr<std::vector<std::string>> ParseScheduleNames(absl::string_view text) {
  const std::vector<std::string> all = {std::string(kAll)};
  return ParseNames<std::string>(text, all, [](absl::string_view name) -> absl::StatusOr<std::string> {
    if (!name.empty()) return std::string(name);
    return absl::InvalidArgumentError("write all, or names of schedules with commas between them: ring,direct");
  });
}

std::vector<std::string> CodecsNamed(const std::vector<std::string>& codecs) {
  std::vector<std::string> named;
  const auto add = [&](absl::string_view codec) {
    if (std::find(named.begin(), named.end(), codec) == named.end()) named.emplace_back(codec);
  };
  for (const std::string& codec : codecs) {
    if (codec != kAll) {
      add(codec);
      continue;
    }
    add(kNone);
    for (const Codec* one : AllCodecs()) add(one->name);
  }
  return named;
}

absl::StatusOr<BenchCases> CasesOf(const BenchSweep& sweep, const BenchOptions& options, int ranks) {
  for (const std::string& codec : CodecsNamed(sweep.codecs)) {
    const absl::Status known = codec == kNone ? absl::OkStatus() : FindCodec(codec.substr(0, codec.find(','))).status();
    if (!known.ok()) return absl::InvalidArgumentError(absl::StrCat("--codec ", codec, ": ", known.message()));
  }
  BenchCases result;
  absl::Status first;
  for (BenchOptions& combination : CombinationsOf(sweep, options)) {
    const absl::Status measurable = CheckBench(combination, ranks);
    if (absl::IsNotFound(measurable)) return measurable;
    if (measurable.ok()) {
      result.cases.push_back(std::move(combination));
      continue;
    }
    first.Update(measurable);
    std::string reason(measurable.message());
    if (std::find(result.left_out.begin(), result.left_out.end(), reason) == result.left_out.end()) {
      result.left_out.push_back(std::move(reason));
    }
  }
  const auto has_codec = [](const BenchOptions& one) { return !one.codec.empty(); };
  if (options.both_places && absl::c_any_of(result.cases, has_codec)) {
    result.left_out.emplace_back("sums in messages of a codec out of place, as they are in place always");
  }
  if (!result.cases.empty()) return result;
  if (!first.ok()) return first;
  return absl::InvalidArgumentError(
      "nothing to measure: elements of this type can be moved but not reduced; name a collective that moves them");
}

}  // namespace tutti::cli
