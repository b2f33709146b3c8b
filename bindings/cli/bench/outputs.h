// The outputs of `tutti bench` beside its table: files, a picture, and a comparison with earlier runs.
#ifndef TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_
#define TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bindings/cli/bench/record.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/row_file.h"

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

// Prints the comparison of earlier runs, and draws them where a file is named.
absl::Status CompareRecords(const BenchOutputs& outputs, absl::Span<const BenchRecord> records);

// Takes the rows of a run as they are measured, on rank 0.
class BenchRecorder {
 public:
  // Creates the files. `table` gets the table.
  BenchRecorder(const BenchOutputs& outputs, std::vector<BenchRecord> earlier, const BenchAbout& about, int repeats,
                const TableColumns& columns, std::FILE* table);

  // Prints and writes the row, and both stay when the process is killed.
  void Add(const BenchRow& row);
  // Prints what was not said before.
  void Note(const std::string& note);
  // Ends the table and the files; the first error of a file. FailedPrecondition when there was no row.
  absl::Status Finish();

  // Wrong elements of all rows.
  std::int64_t wrong() const;

 private:
  const BenchOutputs& outputs_;
  const int repeats_;
  const TableColumns columns_;
  std::FILE* const table_;
  std::vector<std::unique_ptr<RowFile>> files_;
  std::vector<BenchRecord> records_;  // earlier ones, then this one
  std::set<std::string> notes_;
  absl::Status drawn_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_OUTPUTS_H_
