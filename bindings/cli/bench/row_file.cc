#include "bindings/cli/bench/row_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tutti::cli {
namespace {

constexpr absl::string_view kEndOfJson = "\n]}\n";

std::string BeginningOf(RowFormat format, const BenchAbout& about) {
  if (format == RowFormat::kJson) return absl::StrCat("{\"run\": ", JsonOf(about), ",\n\"rows\": [");
  if (format == RowFormat::kJsonLines) return absl::StrCat("{\"run\": ", JsonOf(about), "}\n");
  std::string beginning;
  for (const auto& [name, value] : about.lines())
    absl::StrAppend(&beginning, "# ", name, ": ", absl::StrReplaceAll(value, {{"\n", " "}}), "\n");
  return absl::StrCat(beginning, CsvHeading(), "\n");
}

}  // namespace

RowFile::RowFile(const std::string& path, RowFormat format, const BenchAbout& about) : format_(format), file_(path) {
  file_.ReplaceEnd(BeginningOf(format, about), end());
}

void RowFile::Append(const BenchRow& row) {
  if (format_ == RowFormat::kJson) {
    file_.ReplaceEnd(absl::StrCat(any_rows_ ? ",\n" : "\n", JsonOf(row)), end());
  } else {
    file_.ReplaceEnd(absl::StrCat(format_ == RowFormat::kCsv ? CsvOf(row) : JsonOf(row), "\n"), end());
  }
  any_rows_ = true;
}

absl::Status RowFile::Finish() {
  if (format_ == RowFormat::kJson && !file_.rewinds()) file_.ReplaceEnd(kEndOfJson, "");
  return file_.Finish();
}

absl::string_view RowFile::end() const {
  return format_ == RowFormat::kJson && file_.rewinds() ? kEndOfJson : absl::string_view();
}

}  // namespace tutti::cli
