#include "bindings/cli/bench/picture.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/bench/places.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/series.h"
#include "bindings/cli/bench/svg_chart.h"
#include "bindings/cli/svg_shapes.h"

namespace tutti::cli {
namespace {

std::string TitleOf(absl::Span<const BenchRecord> records) {
  std::vector<std::string> collectives;
  std::set<std::string> seen;
  std::set<std::string> places;
  for (const BenchRecord& record : records) {
    for (const BenchRow& row : record.rows) {
      if (seen.insert(row.collective).second) collectives.push_back(row.collective);
      places.insert(InWords(row.ranks, row.places));
    }
  }
  const std::string which =
      collectives.size() > 3 ? absl::StrCat(collectives.size(), " collectives") : absl::StrJoin(collectives, ", ");
  return absl::StrCat(which, ", ", absl::StrJoin(places, " and "));
}

// When and where a record was measured, and by which command.
std::string NoteOf(const BenchRecord& record) {
  constexpr std::size_t kMax = 165;  // characters that a line has room for
  const BenchAbout& about = record.about;
  std::string note = record.name;
  if (!about.date.empty()) absl::StrAppend(&note, ": ", about.date, " on ", absl::StrJoin(about.hosts, " "));
  if (!about.version.empty()) absl::StrAppend(&note, ", tutti ", about.version);
  if (!about.command.empty()) absl::StrAppend(&note, ", ", about.command);
  return Shortened(note, kMax);
}

// A label that tells a record from the others: its name and the settings that it does not share with them.
std::string LabelOf(const BenchRecord& record, const std::string& difference, const std::string& series) {
  std::vector<std::string> words = {record.name};
  if (!difference.empty()) words.push_back(absl::StrCat("(", difference, ")"));
  if (!series.empty()) words.push_back(series);
  return absl::StrJoin(words, " ");
}

}  // namespace

std::string PictureOf(absl::Span<const BenchRecord> records) {
  Chart time{.x_label = "size (bytes)", .y_label = "time of a call, mean (µs)", .curves = {}};
  Chart bandwidth{.x_label = "size (bytes)", .y_label = "bus bandwidth (GB/s)", .curves = {}};
  const std::vector<std::vector<Series>> all = SeriesOf(records);
  const std::vector<std::string> differences = DifferencesOf(records);
  int number = 0;
  bool predicted_any = false;
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (const Series& series : all[i]) {
      if (++number > kMaxSeries) continue;
      const bool alone = records.size() == 1 && !series.label.empty();
      Curve measured{.label = alone ? series.label : LabelOf(records[i], differences[i], series.label),
                     .points = {},
                     .color = number - 1};
      Curve busbw = measured;
      Curve predicted{.label = "", .points = {}, .color = number - 1, .dashed = true};
      Curve predicted_busbw = predicted;
      for (const SeriesPoint& point : series.points) {
        const auto bytes = static_cast<double>(point.bytes);
        measured.points.emplace_back(bytes, point.time_us);
        busbw.points.emplace_back(bytes, point.busbw_gb_s);
        if (point.predicted_us <= 0) continue;
        predicted_any = true;
        predicted.points.emplace_back(bytes, point.predicted_us);
        predicted_busbw.points.emplace_back(bytes, point.busbw_gb_s * point.time_us / point.predicted_us);
      }
      for (Curve* curve : {&predicted, &measured}) time.curves.push_back(std::move(*curve));
      for (Curve* curve : {&predicted_busbw, &busbw}) bandwidth.curves.push_back(std::move(*curve));
    }
  }
  std::vector<std::string> notes;
  for (const BenchRecord& record : records) {
    notes.push_back(NoteOf(record));
    const std::string doubt = DoubtOn(record.rows);
    if (!doubt.empty()) notes.push_back(absl::StrCat(record.name, ": ", doubt));
  }
  if (predicted_any) notes.push_back("dashed: predicted");
  if (number > kMaxSeries) notes.push_back(absl::StrCat(number - kMaxSeries, " more curves are left out"));
  std::string description;
  for (const BenchRecord& record : records) {
    absl::StrAppend(&description, record.name, "\n");
    for (const auto& [name, value] : record.about.lines()) absl::StrAppend(&description, "  ", name, ": ", value, "\n");
  }
  return SvgOf(TitleOf(records), description, notes, {time, bandwidth});
}

}  // namespace tutti::cli
