#include "bindings/cli/bench/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/bench/places.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/series.h"
#include "bindings/cli/sizes.h"

namespace tutti::cli {
namespace {

// A, B, … for the records.
std::string LetterOf(std::size_t record) { return std::string(1, static_cast<char>('A' + record % 26)); }

std::string HeadingOf(absl::Span<const BenchRecord> records) {
  const std::vector<std::string> differences = DifferencesOf(records);
  std::string heading;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const BenchAbout& about = records[i].about;
    absl::StrAppend(&heading, "# ", LetterOf(i), ": ", records[i].name);
    if (!differences[i].empty()) absl::StrAppend(&heading, " (", differences[i], ")");
    if (!about.command.empty()) absl::StrAppend(&heading, ": ", about.command);
    if (!about.date.empty()) {
      absl::StrAppend(&heading, "\n#    ", about.date, ", ", InWords(about.ranks, about.places), ", host",
                      about.hosts.size() == 1 ? " " : "s ", absl::StrJoin(about.hosts, " "), ", tutti ", about.version);
      if (!about.build.empty()) absl::StrAppend(&heading, " (", about.build, ")");
    }
    if (!about.settings.empty()) absl::StrAppend(&heading, "\n#    with ", about.settings_in_words());
    const std::string doubt = DoubtOn(records[i].rows);
    if (!doubt.empty()) absl::StrAppend(&heading, "\n#    ", doubt);
    absl::StrAppend(&heading, "\n");
  }
  absl::StrAppendFormat(&heading, "#%12s", "size");
  for (std::size_t i = 0; i < records.size(); ++i) absl::StrAppendFormat(&heading, " %10s", LetterOf(i) + " (us)");
  for (std::size_t i = 1; i < records.size(); ++i) absl::StrAppendFormat(&heading, " %7s", LetterOf(i) + "/A");
  for (std::size_t i = 0; i < records.size(); ++i) absl::StrAppendFormat(&heading, " %10s", LetterOf(i) + " busbw");
  return heading + "\n";
}

// The points of one series and size, of the records that have them.
using Row = std::vector<SeriesPoint>;

std::string LineOf(const Row& row) {
  std::string line = absl::StrFormat(" %12d", row.front().bytes);
  for (const SeriesPoint& point : row) absl::StrAppendFormat(&line, " %10s", Microseconds(point.time_us));
  for (std::size_t i = 1; i < row.size(); ++i) {
    absl::StrAppendFormat(&line, " %7.2f", row[i].time_us / row.front().time_us);
  }
  for (const SeriesPoint& point : row) absl::StrAppendFormat(&line, " %10s", GigabytesPerSecond(point.busbw_gb_s));
  return line + "\n";
}

std::string FootingOf(const std::vector<Row>& rows, std::size_t records, std::size_t unmatched) {
  std::string footing;
  for (std::size_t i = 1; i < records; ++i) {
    double logarithms = 0;
    for (const Row& row : rows) logarithms += std::log(row[i].time_us / row.front().time_us);
    absl::StrAppendFormat(&footing, "# %s takes %.2f of the time of A: geometric mean over %d sizes\n", LetterOf(i),
                          std::exp(logarithms / static_cast<double>(rows.size())), rows.size());
  }
  if (unmatched > 0)
    absl::StrAppend(&footing, "# ", unmatched, unmatched == 1 ? " size is" : " sizes are",
                    " not in all of them, and left out\n");
  return footing;
}

// What a record has, for an error: "ring has all_reduce of 4 to 64K bytes".
std::string ContentsOf(const std::string& name, absl::Span<const Series> series) {
  constexpr std::size_t kMaxNamed = 3;
  std::vector<std::string> named;
  for (const Series& one : series.first(std::min(series.size(), kMaxNamed))) {
    std::string sizes = FormatBytes(one.points.front().bytes);
    if (one.points.size() > 1) absl::StrAppend(&sizes, " to ", FormatBytes(one.points.back().bytes));
    named.push_back(absl::StrCat(one.label, one.label.empty() ? "" : " of ", sizes, " bytes"));
  }
  if (series.size() > kMaxNamed) named.push_back(absl::StrCat(series.size() - kMaxNamed, " more"));
  return absl::StrCat(name, " has ", absl::StrJoin(named, ", "));
}

}  // namespace

absl::StatusOr<std::string> Comparison(absl::Span<const BenchRecord> records) {
  std::vector<std::string> labels;
  std::map<std::string, std::map<std::int64_t, Row>> table;
  const std::vector<std::vector<Series>> all = SeriesOf(records);
  for (const std::vector<Series>& of_record : all) {
    for (const Series& series : of_record) {
      if (table.count(series.label) == 0) labels.push_back(series.label);
      for (const SeriesPoint& point : series.points) table[series.label][point.bytes].push_back(point);
    }
  }
  std::string text = HeadingOf(records);
  std::vector<Row> compared;
  std::size_t unmatched = 0;
  for (const std::string& label : labels) {
    std::string lines;
    for (const auto& [bytes, row] : table[label]) {
      const bool is_whole = row.size() == records.size() && row.front().time_us > 0;
      unmatched += is_whole ? 0 : 1;
      if (!is_whole) continue;
      compared.push_back(row);
      absl::StrAppend(&lines, LineOf(row));
    }
    if (!lines.empty() && !label.empty()) absl::StrAppend(&text, "# ", label, "\n");
    absl::StrAppend(&text, lines);
  }
  if (compared.empty()) {
    std::vector<std::string> contents;
    for (std::size_t i = 0; i < records.size(); ++i) contents.push_back(ContentsOf(records[i].name, all[i]));
    return absl::InvalidArgumentError(absl::StrCat("nothing to compare, as no setting and size is in every file: ",
                                                   absl::StrJoin(contents, "; "), "; measure the same in every run"));
  }
  return text + FootingOf(compared, records.size(), unmatched);
}

}  // namespace tutti::cli
