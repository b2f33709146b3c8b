// The outputs of `tutti bench` beside its table: files, a picture, and a comparison with earlier runs.
#ifndef TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_
#define TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bindings/cli/bench/record.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/row_file.h"
#include "bindings/cli/bench/whole_file.h"

namespace tutti::cli {

// Files that flags name; "" where they name none.
struct BenchOutputs {
  std::string json, jsonl, csv;      // "-": standard output
  std::string plot;                  // an SVG
  std::vector<std::string> compare;  // earlier runs, to be read

  // Whether rows go to standard output, so that the table goes to standard error.
  bool rows_to_output() const { return json == "-" || jsonl == "-" || csv == "-"; }
};

// Whether every file can be written, and none is named twice: asked before anything is measured. Also reads the earlier
// runs. Changes no file.
absl::StatusOr<std::vector<BenchRecord>> CheckOutputs(const BenchOutputs& outputs);

// Whether ranks that this process starts can open the files that this process can: InvalidArgument names one that is a
// descriptor, or a pipe with an earlier run. Reads no file; asked before CheckOutputs, which reads a pipe to its end.
absl::Status CheckFilesOfRanks(const BenchOutputs& outputs);

// Prints the comparison of earlier runs, and draws them where a file is named.
absl::Status CompareRecords(const BenchOutputs& outputs, absl::Span<const BenchRecord> records);

// Takes the rows of a run as they are measured, on rank 0.
class BenchRecorder {
 public:
  // `table` gets the table.
  BenchRecorder(const BenchOutputs& outputs, std::vector<BenchRecord> earlier, const BenchAbout& about, int repeats,
                const TableColumns& columns, std::FILE* table);

  // Creates the files, before anything is measured. When one of them cannot be written, all are removed, and the error
  // names those that could not.
  absl::Status Open();
  // Prints and writes the row, and both stay when the process is killed. A file that cannot be written is left as it
  // was before the row.
  void Add(const BenchRow& row);
  // Prints what was not said before.
  void Note(const std::string& note);
  // Ends the table and the files. The error names every file that is incomplete; FailedPrecondition when there was no
  // row.
  absl::Status Finish();

  // Wrong elements of all rows.
  std::int64_t wrong() const;

 private:
  // OK while every file has all that it was to get; otherwise the errors of all files.
  absl::Status FileStatus() const;

  const BenchOutputs& outputs_;
  const int repeats_;
  const TableColumns columns_;
  std::FILE* const table_;
  std::vector<std::unique_ptr<RowFile>> files_;
  std::optional<WholeFile> picture_;
  std::vector<BenchRecord> records_;  // earlier ones, then this one
  std::set<std::string> notes_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_
