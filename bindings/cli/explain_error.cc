#include "bindings/cli/explain_error.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/suggestion.h"

namespace tutti::cli {
namespace {

// The subcommand the user is in, or the program itself.
const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : Innermost(*parsed.front());
}

std::vector<std::string> FlagsOf(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

std::vector<std::string> SubcommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands(nullptr)) names.push_back(subcommand->get_name());
  return names;
}

std::string PathOf(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : absl::StrCat(PathOf(*app.get_parent()), " ", app.get_name());
}

std::string ExplainExtra(const CLI::App& app, const std::string& extra) {
  const bool is_flag = absl::StartsWith(extra, "-");
  const std::vector<std::string> names = is_flag ? FlagsOf(app) : SubcommandsOf(app);
  if (names.empty()) return absl::StrCat("'", extra, "' is one argument too many");
  return absl::StrCat(is_flag ? "no flag '" : "no command '", extra, "'", Suggestion(extra, names));
}

// Names all required arguments that are missing, where CLI11 names the first one.
std::string ExplainMissing(const CLI::App& app, const CLI::ParseError& error) {
  std::vector<std::string> missing;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_required() && option->empty()) missing.push_back(option->get_name());
  }
  return missing.size() < 2 ? error.what() : absl::StrCat(absl::StrJoin(missing, ", "), " are required");
}

// The first word of the command line that was not understood. A flag counts before other words, because the word behind
// a flag may be the flag's value. Where no command was recognized, a first word that is no flag was meant as a command,
// and the flags belong to that command.
std::string FirstExtra(const CLI::App& app) {
  std::string first;
  for (const std::string& extra : app.remaining(/*recurse=*/true)) {
    if (extra == "--") continue;
    if (first.empty() && app.get_subcommands().empty() && !absl::StartsWith(extra, "-")) return extra;
    if (absl::StartsWith(extra, "-")) return extra;
    if (first.empty()) first = extra;
  }
  return first;
}

}  // namespace

std::string ExplainError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& innermost = Innermost(app);
  const std::string extra = FirstExtra(app);
  const bool is_missing = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  std::string what = is_missing ? ExplainMissing(innermost, error) : error.what();
  // A mistyped flag may leave a required flag missing: the user must hear of the mistyped flag.
  const bool is_extra = is_missing || error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  if (is_extra && !extra.empty()) what = ExplainExtra(innermost, extra);
  return absl::StrCat(PathOf(innermost), ": ", what, "\nSee: ", PathOf(innermost), " --help");
}

}  // namespace tutti::cli
