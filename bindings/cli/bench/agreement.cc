#include "bindings/cli/bench/agreement.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/config.h"
#include "bindings/cli/sizes.h"

namespace tutti::cli {
namespace {

std::string Given(bool given) { return given ? "yes" : "no"; }

template <typename Values>
std::string NamesOf(const Values& values) {
  return absl::StrJoin(values, ",", [](std::string* out, auto value) { absl::StrAppend(out, Name(value)); });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> FieldsOf(const BenchFlags& flags) {
  const BenchOptions& options = flags.options;
  const BenchSweep& sweep = flags.sweep;
  return {{"collective", absl::StrJoin(sweep.collectives, ",")},
          {"--transport", options.transport},
          {"--device", options.device},
          {"--peer", options.peer},
          {"--messages", Given(options.messages)},
          {"--buffers", options.buffers},
          {"--min-bytes", FormatBytes(options.min_bytes)},
          {"--max-bytes", FormatBytes(options.max_bytes)},
          {"--factor", absl::StrCat(options.factor)},
          {"--dtype", NamesOf(sweep.dtypes)},
          {"--op", NamesOf(sweep.ops)},
          {"--root", absl::StrCat(options.traffic.root)},
          {"--schedule", absl::StrJoin(sweep.schedules, ",")},
          {"--codec", absl::StrJoin(sweep.codecs, " ")},
          {"--in-place", Given(flags.in_place || !flags.out_of_place)},
          {"--out-of-place", Given(flags.out_of_place)},
          {"--iters", options.calls == 0 ? "" : absl::StrCat(options.calls)},
          {"--warmup", absl::StrCat(options.warm_ups)},
          {"--min-time", absl::StrCat(options.min_time)},
          {"--repeats", absl::StrCat(flags.repeats)},
          {"--rewrite", Given(options.rewrite)},
          {"--pause", absl::StrCat(options.pause)},
          {"--no-check", Given(flags.no_check)},
          {"--latency", Given(flags.latency)},
          {"--bind", Given(options.bind)}};
}

absl::Status CheckAgreementOnFlags(const Bootstrap& bootstrap, const BenchFlags& flags) {
  const absl::StatusOr<Config> config = ParseConfig(ProcessEnvironment());
  if (!config.ok()) return config.status();
  absl::Status agreed = CheckAgreement(*bootstrap.store, "tutti bench", bootstrap.identity.rank,
                                       bootstrap.identity.size, FieldsOf(flags), absl::Now() + config->timeout);
  if (!absl::IsInvalidArgument(agreed)) return WithHintOnRefusal(std::move(agreed));
  return absl::InvalidArgumentError(absl::StrCat("tutti bench was started with different arguments: ", agreed.message(),
                                                 "; give all ranks the same arguments (only files may differ)"));
}

absl::Status WithHintOnRefusal(absl::Status status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      status.message(), "; a missing rank may have refused its own arguments or files: see the output of that rank"));
}

}  // namespace tutti::cli
