// A file that gets the rows of a benchmark one by one, as they are measured.
#ifndef TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_
#define TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "bindings/cli/bench/record.h"

namespace tutti::cli {

// kJson: {"run": {…}, "rows": […]}, one row per line; on a disk the document is whole after every row. kJsonLines:
// {"run": {…}}, then a row per line. kCsv: a line "# name: value" for each field of BenchAbout, a heading, then the
// rows.
enum class RowFormat { kJson, kJsonLines, kCsv };

class RowFile {
 public:
  // Creates the file anew, with what comes before the rows; "-" is standard output.
  RowFile(const std::string& path, RowFormat format, const BenchAbout& about);
  ~RowFile();
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // A row that was appended stays when the process is killed.
  void Append(const BenchRow& row);
  // Ends the file. The first error, of any write, names the file and the reason.
  absl::Status Finish();

 private:
  void Write(const std::string& text);
  // Notes errno for Finish, once.
  void Fail();

  const std::string path_;
  const RowFormat format_;
  std::FILE* file_;
  bool rewinds_ = false;  // the end of a document can be overwritten by the next row
  bool any_rows_ = false;
  absl::Status status_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_
