#include "bindings/cli/command.h"

#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bindings/cli/check/checks.h"
#include "bindings/cli/check/current_case.h"

namespace tutti::cli {
namespace {

// Prints what a check has found.
absl::Status Print(absl::string_view name, const absl::StatusOr<std::string>& found) {
  if (!found.ok()) return {found.status().code(), absl::StrCat(name, ": ", found.status().message())};
  std::fputs(absl::StrCat(name, ": ", *found, "\n").c_str(), stdout);
  std::fflush(stdout);  // what is checked next may end the process
  return absl::OkStatus();
}

// Prints what was found of plans, and how to verify plans of other worlds.
absl::Status PrintPlans(absl::string_view name, absl::StatusOr<std::string> found) {
  if (found.ok()) absl::StrAppend(&*found, "; others: tutti plan ", name, " --ranks N --count C --verify");
  return Print(name, found);
}

// The error that `name` names no schedule of the collective.
absl::Status NamesNoSchedule(absl::string_view name, Collective collective) {
  std::vector<std::string> valid;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != collective) continue;
    valid.push_back(absl::StrCat(Name(collective), ":", schedule->name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is no schedule, which is COLLECTIVE:NAME; valid: ", absl::StrJoin(valid, ", ")));
}

// Verifies the plans of a schedule, and compares the results of its calls.
absl::Status CheckSchedule(absl::string_view name, const Schedule& schedule) {
  if (absl::Status status = PrintPlans(name, CheckPlans(schedule)); !status.ok()) return status;
  return Print(name, CheckNumbers(schedule));
}

// The check of `name`; an error where there is nothing of that name.
absl::StatusOr<std::function<absl::Status()>> CheckOf(const std::string& name) {
  if (absl::string_view codec_name = name; absl::ConsumePrefix(&codec_name, "codec=")) {
    if (const std::size_t end = codec_name.find_first_of(":,"); end != absl::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", name, "': options are not taken here, because every set of options that the codec takes is ",
          "tried; write codec=", codec_name.substr(0, end)));
    }
    const absl::StatusOr<const Codec*> codec = FindCodec(codec_name);
    if (!codec.ok()) return codec.status();
    return [name, codec = *codec] { return Print(name, CheckCodec(*codec)); };
  }
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits(':', 1));
  const absl::StatusOr<Collective> collective = ParseCollective(parts.first);
  if (!collective.ok()) {
    const absl::StatusOr<Strategy> strategy = ParseStrategy(name);
    if (strategy.ok()) return [name, strategy = *strategy] { return PrintPlans(name, CheckPlans(strategy)); };
    return absl::InvalidArgumentError(
        absl::StrCat(strategy.status().message(), "; a schedule is COLLECTIVE:NAME, and a codec codec=NAME"));
  }
  if (parts.second.empty()) return NamesNoSchedule(name, *collective);
  const absl::StatusOr<const Schedule*> schedule = FindSchedule(*collective, parts.second);
  if (!schedule.ok()) return schedule.status();
  return [name, schedule = *schedule] { return CheckSchedule(name, *schedule); };
}

// Checks all names, and says which are wrong; an unknown name is an error before anything is checked.
absl::StatusOr<int> CheckAll(const std::vector<std::string>& names) {
  std::vector<std::function<absl::Status()>> checks;
  for (const std::string& name : names) {
    absl::StatusOr<std::function<absl::Status()>> check = CheckOf(name);
    if (!check.ok()) return check.status();
    checks.push_back(*std::move(check));
  }
  std::vector<std::string> wrong;
  TellCaseOnSignals();
  for (std::size_t i = 0; i < names.size(); ++i) {
    SetCheckedName(names[i]);
    const absl::Status status = checks[i]();
    if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
    if (status.ok()) continue;
    std::fflush(stdout);
    std::fputs(absl::StrCat("tutti: ", status.message(), "\n").c_str(), stderr);
    wrong.push_back(names[i]);
  }
  if (wrong.empty()) return 0;
  return absl::FailedPreconditionError(
      absl::StrCat(wrong.size(), " of ", names.size(), names.size() == 1 ? " name" : " names",
                   wrong.size() == 1 ? " is wrong: " : " are wrong: ", absl::StrJoin(wrong, ", ")));
}

}  // namespace

void AddCheck(CLI::App& app, Invocation& invocation) {
  CLI::App* check =
      app.add_subcommand("check", "Try a schedule, an algorithm or a codec in many worlds, also your own");
  auto names = std::make_shared<std::vector<std::string>>();
  check
      ->add_option("names", *names, "Schedules (all_gather:ring), strategies (bytegrad:block=512), codecs (codec=bf16)")
      ->type_name("NAME")
      ->required();
  check->footer(
      "Plans are verified in worlds of 1 to 9 ranks, results of calls compared element by element, messages of codecs\n"
      "encoded, decoded and damaged: docs/extensions.md. Example:\n"
      "  TUTTI_EXTENSIONS=./libmine.so tutti check all_gather:mine codec=mine");
  check->callback([names, &invocation] { invocation.action = [names] { return CheckAll(*names); }; });
}

}  // namespace tutti::cli
