// Flags whose values Tutti's own parsers read, so that a wrong value is refused in the same words everywhere.
#ifndef TUTTI_BINDINGS_CLI_FLAGS_H_
#define TUTTI_BINDINGS_CLI_FLAGS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "bindings/cli/suggestion.h"

namespace tutti::cli {

inline constexpr int kMaxRanks = 65536;

// A number from `low` to `high`. CLI::Range lets nan through, which is neither below `low` nor above `high`.
inline CLI::Validator NumberWithin(double low, double high) {
  const std::string range = absl::StrCat(low, " to ", high);
  return {[low, high, range](const std::string& text) -> std::string {
            double number = 0;
            if (absl::SimpleAtod(text, &number) && number >= low && number <= high) return "";
            return absl::StrCat("expected a number from ", range, ", found ", text);
          },
          absl::StrCat("in ", range)};
}

// A whole number from `low` to `high`. CLI::Range would say of a text that is no number that its value is out of range.
// Digits behind a leading 0 are refused: CLI11, which reads the text after this check, would take 010 for an octal 8.
inline CLI::Validator WholeNumberWithin(std::int64_t low, std::int64_t high) {
  const std::string range = absl::StrCat(low, " to ", high);
  return {[low, high, range](const std::string& text) -> std::string {
            std::int64_t number = 0;
            if (!absl::SimpleAtoi(text, &number) || number < low || number > high) {
              return absl::StrCat("expected a whole number from ", range, ", found ", text);
            }
            const std::string digits = text.substr(text.find_first_of("0123456789"));
            if (digits.size() == 1 || digits.front() != '0') return "";
            return absl::StrCat("write ", number, " in place of ", text, ", without a leading 0");
          },
          absl::StrCat("in ", range)};
}

// One of `names`. CLI::IsMember would not say which of them was meant.
inline CLI::Validator OneOf(const std::vector<std::string>& names) {
  return {[names](const std::string& text) -> std::string {
            if (absl::c_linear_search(names, text)) return "";
            return absl::StrCat("'", text, "' is not known", Suggestion(text, names));
          },
          absl::StrCat("{", absl::StrJoin(names, ","), "}")};
}

// The name of a file. An unset variable in a script, --json "$OUT", gives an empty one.
inline absl::StatusOr<std::string> ParseFile(absl::string_view file) {
  if (!file.empty()) return std::string(file);
  return absl::InvalidArgumentError("'' is the name of no file; write one, or leave the flag out");
}

// The flags among `names` that the user has given, with their dashes.
inline std::vector<std::string> GivenAmong(const CLI::App& app, std::initializer_list<const char*> names) {
  std::vector<std::string> given;
  for (const char* name : names) {
    if (app.count(name) > 0) given.emplace_back(name);
  }
  return given;
}

// A flag that `parse` reads into `value`. The help shows `shown_default` unless it is empty.
template <typename T>
CLI::Option* AddParsed(CLI::App& app, const std::string& names, T& value, absl::StatusOr<T> (*parse)(absl::string_view),
                       const std::string& type, const std::string& shown_default, const std::string& doc) {
  CLI::Option* option = app.add_option_function<std::string>(
      names,
      [&value, parse, names](const std::string& text) {
        absl::StatusOr<T> parsed = parse(text);
        if (!parsed.ok()) throw CLI::ValidationError(names, std::string(parsed.status().message()));
        value = *std::move(parsed);
      },
      doc);
  option->type_name(type);
  if (!shown_default.empty()) option->default_str(shown_default);
  return option;
}

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_FLAGS_H_
