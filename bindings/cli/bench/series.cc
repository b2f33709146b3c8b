#include "bindings/cli/bench/series.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/median.h"
#include "bindings/cli/bench/places.h"

namespace tutti::cli {
namespace {

// Whether a record measures several schedules that flags have named.
bool NamesSchedules(const BenchRecord& record) {
  std::set<std::string> named;
  for (const BenchRow& row : record.rows) {
    if (!row.schedule.empty() && !row.schedule_chosen) named.insert(row.schedule);
  }
  return named.size() > 1;
}

// The settings of a row in words, always the same ones in the same order; "" where a setting means nothing to the row.
// With `by_schedule` a chosen schedule is told by its name, as others are.
std::vector<std::string> SettingsOf(const BenchRow& row, bool by_schedule = false) {
  return {row.collective,
          row.library,
          row.transport,
          row.device,
          InWords(row.ranks, row.places),
          std::string(Name(row.dtype)),
          row.op == "none" ? "" : row.op,
          row.root.has_value() ? absl::StrCat("root ", *row.root) : "",
          row.in_place ? "in place" : "out of place",
          row.schedule_chosen && !by_schedule ? "chosen schedule" : row.schedule,
          row.codec.empty() ? "no codec" : absl::StrCat("codec ", row.codec),
          absl::StrCat(row.buffers, " buffers"),
          row.rewrite ? "rewritten" : "not rewritten",
          row.pause_s > 0 ? absl::StrCat("pauses of ", row.pause_s, " s") : "no pauses",
          row.messages ? "messages" : "memory mapped where it can be",
          row.variant,
          row.link};
}

// For every setting, the words that those rows of a record have for it to which it means something.
std::vector<std::set<std::string>> WordsOf(const BenchRecord& record, bool by_schedule = false) {
  std::vector<std::set<std::string>> words(SettingsOf(BenchRow()).size());
  for (const BenchRow& row : record.rows) {
    const std::vector<std::string> settings = SettingsOf(row, by_schedule);
    for (std::size_t i = 0; i < settings.size(); ++i) {
      if (!settings[i].empty()) words[i].insert(settings[i]);
    }
  }
  return words;
}

std::string Joined(const std::vector<std::string>& words, absl::string_view separator) {
  std::vector<std::string> said = words;
  std::erase(said, "");
  return absl::StrJoin(said, separator);
}

SeriesPoint PointOf(const std::vector<const BenchRow*>& repeats) {
  std::vector<double> times;
  times.reserve(repeats.size());
  for (const BenchRow* repeat : repeats) times.push_back(repeat->time_us);
  const BenchRow& any = *repeats.front();
  SeriesPoint point{
      .bytes = any.bytes, .time_us = MedianOf(std::move(times)), .busbw_gb_s = 0, .predicted_us = any.predicted_us};
  // The product of time and bandwidth depends on the size alone.
  if (point.time_us > 0) point.busbw_gb_s = any.busbw_gb_s * any.time_us / point.time_us;
  return point;
}

}  // namespace

std::vector<std::vector<Series>> SeriesOf(absl::Span<const BenchRecord> records) {
  // Where a record has a series for each schedule, those that another one has chosen are their like.
  const bool by_schedule = std::any_of(records.begin(), records.end(), NamesSchedules);
  std::vector<bool> varies(SettingsOf(BenchRow()).size());
  for (const BenchRecord& record : records) {
    const std::vector<std::set<std::string>> words = WordsOf(record, by_schedule);
    for (std::size_t i = 0; i < words.size(); ++i) varies[i] = varies[i] || words[i].size() > 1;
  }
  std::vector<std::vector<Series>> all;
  for (const BenchRecord& record : records) {
    std::vector<std::string> labels;  // in the order of the rows
    std::map<std::string, std::map<std::int64_t, std::vector<const BenchRow*>>> rows;
    for (const BenchRow& row : record.rows) {
      std::vector<std::string> settings = SettingsOf(row, by_schedule);
      for (std::size_t i = 0; i < settings.size(); ++i) {
        if (!varies[i]) settings[i].clear();
      }
      const std::string label = Joined(settings, " ");
      if (rows.count(label) == 0) labels.push_back(label);
      rows[label][row.bytes].push_back(&row);
    }
    std::vector<Series>& series = all.emplace_back();
    for (const std::string& label : labels) {
      Series& one = series.emplace_back(Series{.label = label, .points = {}});
      for (const auto& [bytes, repeats] : rows[label]) one.points.push_back(PointOf(repeats));
    }
  }
  return all;
}

std::vector<std::string> DifferencesOf(absl::Span<const BenchRecord> records) {
  std::vector<std::vector<std::set<std::string>>> words;
  for (const BenchRecord& record : records) words.push_back(WordsOf(record));
  std::vector<std::string> differences;
  for (const std::vector<std::set<std::string>>& own : words) {
    std::vector<std::string> said;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool is_one = std::all_of(words.begin(), words.end(), [&](const auto& of) { return of[i].size() == 1; });
      const bool differs = std::any_of(words.begin(), words.end(), [&](const auto& of) { return of[i] != own[i]; });
      if (is_one && differs) said.push_back(*own[i].begin());
    }
    differences.push_back(Joined(said, ", "));
  }
  return differences;
}

}  // namespace tutti::cli
