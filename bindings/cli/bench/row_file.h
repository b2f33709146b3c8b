// A file that gets the rows of a benchmark one by one, as they are measured.
#ifndef TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_
#define TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bindings/cli/bench/record.h"
#include "bindings/cli/bench/whole_file.h"

namespace tutti::cli {

// kJson: {"run": {…}, "rows": […]}, one row per line; on a disk the document is whole after every row. kJsonLines:
// {"run": {…}}, then a row per line. kCsv: a line "# name: value" for each field of BenchAbout, a heading, then the
// rows.
enum class RowFormat { kJson, kJsonLines, kCsv };

class RowFile {
 public:
  // Creates the file anew, with what comes before the rows; "-" is standard output.
  RowFile(const std::string& path, RowFormat format, const BenchAbout& about);

  // A row that was appended stays when the process is killed. A row that cannot be written is left out whole, and so
  // are all rows after it.
  void Append(const BenchRow& row);
  // The first error, of any write, names the file and the reason.
  const absl::Status& status() const { return file_.status(); }
  // Ends the file, and returns the status.
  absl::Status Finish();
  // Removes a file on a disk.
  void Remove() { file_.Remove(); }

 private:
  // The text at the end of the file, after the last row so far.
  absl::string_view end() const;

  const RowFormat format_;
  WholeFile file_;
  bool any_rows_ = false;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_ROW_FILE_H_
