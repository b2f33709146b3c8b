#include "bindings/cli/bench/outputs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "bindings/cli/bench/comparison.h"
#include "bindings/cli/bench/picture.h"
#include "bindings/cli/svg_shapes.h"
#include "bindings/cli/write_file.h"

namespace tutti::cli {
namespace {

// The name of this run among those that it is compared with.
std::string NameOf(const BenchOutputs& outputs) {
  for (const std::string* file : {&outputs.json, &outputs.jsonl, &outputs.csv, &outputs.plot}) {
    if (!file->empty() && *file != "-") return std::filesystem::path(*file).stem().string();
  }
  return "this run";
}

// The descriptor that a path names, as /dev/fd/63, into which a shell turns >(gzip > rows.gz); -1 where none is named.
int DescriptorOf(absl::string_view path) {
  int descriptor = -1;
  const bool names_one = absl::ConsumePrefix(&path, "/dev/fd/") || absl::ConsumePrefix(&path, "/proc/self/fd/");
  return names_one && absl::SimpleAtoi(path, &descriptor) ? descriptor : -1;
}

}  // namespace

absl::Status CheckFilesOfRanks(const BenchOutputs& outputs) {
  std::vector<NamedFile> files = {{"--json", outputs.json}, {"--jsonl", outputs.jsonl}, {"--csv", outputs.csv}};
  for (const std::string& earlier : outputs.compare) files.push_back({"--compare", earlier});
  for (const NamedFile& file : files) {
    if (DescriptorOf(file.path) <= STDERR_FILENO) continue;
    return absl::InvalidArgumentError(absl::StrCat(file.flag, " ", file.path,
                                                   ": ranks are processes that do not inherit this descriptor; name a "
                                                   "file, or add --transport inproc, whose ranks are threads"));
  }
  for (const std::string& earlier : outputs.compare) {
    std::error_code unknown;
    if (!std::filesystem::is_fifo(earlier, unknown)) continue;
    return absl::InvalidArgumentError(absl::StrCat("--compare ", earlier,
                                                   ": a pipe cannot be read twice, by this process and by rank 0; name "
                                                   "a file, or add --transport inproc, whose ranks are threads"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BenchRecord>> CheckOutputs(const BenchOutputs& outputs) {
  std::vector<NamedFile> files;
  for (const NamedFile& file : {NamedFile{"--json", outputs.json}, NamedFile{"--jsonl", outputs.jsonl},
                                NamedFile{"--csv", outputs.csv}, NamedFile{"--plot", outputs.plot}}) {
    if (file.path.empty()) continue;
    for (const NamedFile& other : files) {
      if (absl::Status distinct = CheckDistinct(file, other); !distinct.ok()) return distinct;
    }
    for (const std::string& earlier : outputs.compare) {
      if (absl::Status distinct = CheckDistinct(file, {"--compare", earlier}); !distinct.ok()) return distinct;
    }
    if (file.path != "-") {
      if (absl::Status writable = CheckWritable(file.path); !writable.ok()) return writable;
    }
    files.push_back(file);
  }
  std::vector<BenchRecord> earlier;
  for (const std::string& file : outputs.compare) {
    absl::StatusOr<BenchRecord> record = ReadRecord(file);
    if (!record.ok()) return record.status();
    earlier.push_back(*std::move(record));
  }
  return earlier;
}

absl::Status CompareRecords(const BenchOutputs& outputs, absl::Span<const BenchRecord> records) {
  const absl::StatusOr<std::string> comparison = Comparison(records);
  if (!comparison.ok()) return comparison.status();
  std::fputs(comparison->c_str(), stdout);
  return outputs.plot.empty() ? absl::OkStatus() : WriteFile(outputs.plot, PictureOf(records));
}

BenchRecorder::BenchRecorder(const BenchOutputs& outputs, std::vector<BenchRecord> earlier, const BenchAbout& about,
                             int repeats, const TableColumns& columns, std::FILE* table)
    : outputs_(outputs), repeats_(repeats), columns_(columns), table_(table), records_(std::move(earlier)) {
  records_.push_back({.name = NameOf(outputs), .about = about, .rows = {}});
}

absl::Status BenchRecorder::Open() {
  const auto open = [this](const std::string& path, RowFormat format) {
    if (!path.empty()) files_.push_back(std::make_unique<RowFile>(path, format, records_.back().about));
  };
  open(outputs_.json, RowFormat::kJson);
  open(outputs_.jsonl, RowFormat::kJsonLines);
  open(outputs_.csv, RowFormat::kCsv);
  if (!outputs_.plot.empty()) {
    picture_.emplace(outputs_.plot);
    if (picture_->rewinds()) picture_->ReplaceEnd("", SvgPicture(kPictureMargin, "nothing was measured yet", ""));
  }
  const absl::Status opened = FileStatus();
  if (opened.ok()) return absl::OkStatus();
  for (const std::unique_ptr<RowFile>& file : files_) file->Remove();
  if (picture_.has_value()) picture_->Remove();
  return absl::Status(opened.code(), absl::StrCat("nothing was measured: ", opened.message()));
}

void BenchRecorder::Add(const BenchRow& row) {
  std::vector<BenchRow>& rows = records_.back().rows;
  if (rows.empty() || rows.back().collective != row.collective || rows.back().repeat != row.repeat) {
    const std::string repeat = repeats_ == 1 ? "" : absl::StrCat(", repeat ", row.repeat, " of ", repeats_);
    std::fprintf(table_, "# %s%s\n", row.collective.c_str(), repeat.c_str());
  }
  rows.push_back(row);
  std::fprintf(table_, "%s\n", TableLine(row, columns_).c_str());
  if (columns_.latency) std::fprintf(table_, "%s\n", LatencyLines(row, records_.back().about).c_str());
  std::fflush(table_);
  for (const std::unique_ptr<RowFile>& file : files_) file->Append(row);
  if (picture_.has_value() && picture_->rewinds()) picture_->ReplaceEnd("", PictureOf(records_));
}

void BenchRecorder::Note(const std::string& note) {
  if (notes_.insert(note).second) std::fprintf(table_, "# %s\n", note.c_str());
}

absl::Status BenchRecorder::Finish() {
  const bool any_rows = !records_.back().rows.empty();
  if (any_rows) std::fprintf(table_, "%s\n", TableFooting(records_.back().rows, columns_.may_bind).c_str());
  if (picture_.has_value()) {
    if (any_rows && !picture_->rewinds()) picture_->ReplaceEnd(PictureOf(records_), "");
    picture_->Finish().IgnoreError();
  }
  for (const std::unique_ptr<RowFile>& file : files_) file->Finish().IgnoreError();
  absl::Status status = FileStatus();
  if (!status.ok()) status = absl::Status(status.code(), absl::StrCat("the report is incomplete: ", status.message()));
  if (!any_rows) status.Update(absl::FailedPreconditionError("nothing was measured: no schedule serves these calls"));
  if (outputs_.compare.empty() || !any_rows) return status;
  const absl::StatusOr<std::string> comparison = Comparison(records_);
  status.Update(comparison.status());
  if (comparison.ok()) std::fprintf(table_, "#\n%s", comparison->c_str());
  return status;
}

absl::Status BenchRecorder::FileStatus() const {
  std::vector<absl::Status> all;
  for (const std::unique_ptr<RowFile>& file : files_) all.push_back(file->status());
  if (picture_.has_value()) all.push_back(picture_->status());
  absl::Status first;
  std::vector<absl::string_view> messages;
  for (const absl::Status& status : all) {
    first.Update(status);
    if (!status.ok()) messages.push_back(status.message());
  }
  return absl::Status(first.code(), absl::StrJoin(messages, "; "));
}

std::int64_t BenchRecorder::wrong() const {
  std::int64_t wrong = 0;
  for (const BenchRow& row : records_.back().rows) wrong += std::max<std::int64_t>(row.wrong, 0);
  return wrong;
}

}  // namespace tutti::cli
