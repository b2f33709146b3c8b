#include "bindings/cli/command_line.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace tutti::cli {

std::string CommandLine(const std::vector<std::string>& words) {
  constexpr absl::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,%@";
  return absl::StrJoin(words, " ", [&](std::string* out, const std::string& word) {
    const bool plain = !word.empty() && word.find_first_not_of(kPlain.data(), 0, kPlain.size()) == std::string::npos;
    absl::StrAppend(out, plain ? word : absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'"));
  });
}

}  // namespace tutti::cli
