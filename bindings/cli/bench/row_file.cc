#include "bindings/cli/bench/row_file.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tutti::cli {
namespace {

constexpr char kEndOfJson[] = "\n]}\n";
constexpr long kLengthOfEnd = sizeof(kEndOfJson) - 1;

}  // namespace

RowFile::RowFile(const std::string& path, RowFormat format, const BenchAbout& about)
    : path_(path), format_(format), file_(path == "-" ? stdout : std::fopen(path.c_str(), "we")) {
  if (file_ == nullptr) {
    Fail();
    return;
  }
  struct stat kind = {};
  rewinds_ =
      format == RowFormat::kJson && file_ != stdout && ::fstat(::fileno(file_), &kind) == 0 && S_ISREG(kind.st_mode);
  std::string beginning;
  switch (format) {
    case RowFormat::kJson:
      beginning = absl::StrCat("{\"run\": ", JsonOf(about), ",\n\"rows\": [", rewinds_ ? kEndOfJson : "");
      break;
    case RowFormat::kJsonLines:
      beginning = absl::StrCat("{\"run\": ", JsonOf(about), "}\n");
      break;
    case RowFormat::kCsv:
      for (const auto& [name, value] : about.lines())
        absl::StrAppend(&beginning, "# ", name, ": ", absl::StrReplaceAll(value, {{"\n", " "}}), "\n");
      absl::StrAppend(&beginning, CsvHeading(), "\n");
      break;
  }
  Write(beginning);
}

RowFile::~RowFile() {
  if (file_ != nullptr && file_ != stdout) std::fclose(file_);
}

void RowFile::Append(const BenchRow& row) {
  if (file_ == nullptr) return;
  if (format_ != RowFormat::kJson)
    return Write(absl::StrCat(format_ == RowFormat::kCsv ? CsvOf(row) : JsonOf(row), "\n"));
  if (rewinds_ && std::fseek(file_, -kLengthOfEnd, SEEK_CUR) != 0) Fail();
  Write(absl::StrCat(any_rows_ ? ",\n" : "\n", JsonOf(row), rewinds_ ? kEndOfJson : ""));
  any_rows_ = true;
}

absl::Status RowFile::Finish() {
  if (file_ == nullptr) return status_;
  if (format_ == RowFormat::kJson && !rewinds_) Write(kEndOfJson);
  if (file_ != stdout && std::fclose(file_) != 0) Fail();
  file_ = nullptr;
  return status_;
}

void RowFile::Write(const std::string& text) {
  errno = 0;
  if (std::fputs(text.c_str(), file_) < 0 || std::fflush(file_) != 0) Fail();
}

void RowFile::Fail() {
  const std::string what = path_ == "-" ? "cannot write to standard output" : absl::StrCat("cannot write ", path_);
  status_.Update(absl::ErrnoToStatus(errno != 0 ? errno : EIO, what));
}

}  // namespace tutti::cli
