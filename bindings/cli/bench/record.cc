#include "bindings/cli/bench/record.h"

#include <filesystem>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/read_file.h"
#include "nlohmann/json.hpp"

namespace tutti::cli {
namespace {

using Json = nlohmann::ordered_json;

Json IfAny(bool any, const Json& value) { return any ? value : Json(nullptr); }

Json ObjectOf(const BenchRow& row) {
  const bool has_schedule = !row.schedule.empty();
  const ProcessorWaits waits = row.waits.value_or(ProcessorWaits());
  return {
      {"collective", row.collective},
      {"library", row.library},
      {"schedule", IfAny(has_schedule, row.schedule)},
      {"codec", IfAny(!row.codec.empty(), row.codec)},
      {"transport", row.transport},
      {"ranks", row.ranks},
      {"nodes", IfAny(row.places.nodes > 0, row.places.nodes)},
      {"ranks_per_node", IfAny(row.places.nodes > 0, row.places.ranks_per_node)},
      {"bytes", row.bytes},
      {"count", row.count},
      {"dtype", std::string(Name(row.dtype))},
      {"op", row.op},
      {"root", row.root.has_value() ? Json(*row.root) : Json(nullptr)},
      {"time_us", row.time_us},
      {"p50_us", row.p50_us},
      {"p90_us", row.p90_us},
      {"p95_us", row.p95_us},
      {"p99_us", row.p99_us},
      {"p99_9_us", row.p99_9_us},
      {"max_us", row.max_us},
      {"host_us", IfAny(row.device == "cuda", row.host_us)},
      {"algbw_gb_s", row.algbw_gb_s},
      {"busbw_gb_s", row.busbw_gb_s},
      {"wrong", IfAny(row.wrong >= 0, row.wrong)},
      {"device", row.device},
      {"buffers", row.buffers},
      {"rewrite", row.rewrite},
      {"pause_s", row.pause_s},
      {"in_place", row.in_place},
      {"calls", row.calls},
      {"predicted_us", IfAny(row.predicted_us > 0, row.predicted_us)},
      {"schedule_chosen", IfAny(has_schedule, row.schedule_chosen)},
      {"messages", row.messages},
      {"repeat", row.repeat},
      {"longest_call", row.longest_call},
      {"slowest_rank", row.slowest_rank},
      {"fastest_rank", row.fastest_rank},
      {"fastest_us", row.fastest_us},
      {"waiting_rank", IfAny(row.waits.has_value(), waits.rank)},
      {"waited_us", IfAny(row.waits.has_value(), waits.longest_us)},
      {"slow_calls", IfAny(row.waits.has_value(), waits.slow_calls)},
      {"slow_calls_waited", IfAny(row.waits.has_value(), waits.slow_calls_in_line)},
      {"preempted", row.preempted},
      {"slept", row.slept},
      {"engine_cpu_us", row.engine_cpu_us},
      {"engine_waiting_us", row.engine_waiting_us},
  };
}

// A field of CSV: in quotes where it has a comma, a quote or the end of a line in it.
std::string CsvField(const Json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string Text(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

template <typename T>
T Number(const Json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<T>() : otherwise;
}

bool Truth(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

BenchPlaces PlacesOf(const Json& object) {
  return {.nodes = Number(object, "nodes", 0), .ranks_per_node = Number(object, "ranks_per_node", 0)};
}

BenchAbout AboutOf(const Json& object) {
  BenchAbout about{.hosts = {},
                   .rank_hosts = {},
                   .date = Text(object, "date"),
                   .version = Text(object, "version"),
                   .build = Text(object, "build"),
                   .command = Text(object, "command"),
                   .ranks = Number(object, "ranks", 0),
                   .places = PlacesOf(object),
                   .transport = Text(object, "transport"),
                   .links = Text(object, "links"),
                   .processors = Text(object, "processors")};
  const auto texts = [&object](const char* key, std::vector<std::string>& list) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) return;
    for (const Json& text : *found) {
      if (text.is_string()) list.push_back(text.get<std::string>());
    }
  };
  texts("hosts", about.hosts);
  texts("rank_hosts", about.rank_hosts);
  const auto settings = object.find("settings");
  if (settings == object.end() || !settings->is_object()) return about;
  for (const auto& [name, value] : settings->items()) about.settings[name] = Text(*settings, name.c_str());
  return about;
}

// Rows of other programs (bench/peers) have fewer keys; theirs are of f32.
absl::StatusOr<DType> DTypeOf(const Json& object) {
  const std::string name = Text(object, "dtype");
  if (name.empty()) return DType::kF32;
  const absl::StatusOr<DType> dtype = ParseDType(name);
  return dtype.ok() ? dtype : absl::InvalidArgumentError(absl::StrCat("a row with an ", dtype.status().message()));
}

// Rows of bench/peers have the name of a column: that of a library, or of a build or setting of it.
std::string VariantOf(const Json& object) {
  const std::string name = Text(object, "name");
  return name.empty() ? "" : absl::StrCat("measured as ", name);
}

// Rows of bench/peers have the rate of the link between hosts, the delay of packets and how many are lost.
std::string LinkOf(const Json& object) {
  std::string link = Text(object, "rate");
  const double delay_ms = Number(object, "delay_ms", 0.0);
  const auto lost_of = Number<std::int64_t>(object, "lost_of", 0);
  if (delay_ms > 0) absl::StrAppend(&link, " with a delay of ", delay_ms, " ms");
  if (lost_of > 0) absl::StrAppend(&link, " that loses 1 of ", lost_of, " packets");
  return link;
}

std::optional<Rank> RootOf(const Json& object) {
  constexpr Rank kNone = -1;
  const Rank root = Number(object, "root", kNone);
  return root == kNone ? std::nullopt : std::optional(root);
}

// A median is no substitute for the mean, time_us, which rows of earlier versions lack: the two may differ twofold.
absl::StatusOr<BenchRow> RowOf(const Json& object) {
  for (const char* key : {"collective", "bytes", "time_us"}) {
    if (!object.is_object() || !object.contains(key) || object[key].is_null()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a row without ", key, "; write the file with --json or --jsonl of this version of tutti bench"));
    }
  }
  const absl::StatusOr<DType> dtype = DTypeOf(object);
  if (!dtype.ok()) return dtype.status();
  BenchRow row = {.collective = Text(object, "collective"),
                  .library = Text(object, "library"),
                  .schedule = Text(object, "schedule"),
                  .schedule_chosen = Truth(object, "schedule_chosen", !Text(object, "schedule").empty()),
                  .codec = Text(object, "codec"),
                  .transport = Text(object, "transport"),
                  .ranks = Number(object, "ranks", 0),
                  .places = PlacesOf(object),
                  .bytes = Number<std::int64_t>(object, "bytes", 0),
                  .count = Number<std::int64_t>(object, "count", 0),
                  .dtype = *dtype,
                  .op = Text(object, "op"),
                  .root = RootOf(object),
                  .time_us = Number(object, "time_us", 0.0),
                  .p50_us = Number(object, "p50_us", 0.0),
                  .p90_us = Number(object, "p90_us", 0.0),
                  .p95_us = Number(object, "p95_us", 0.0),
                  .p99_us = Number(object, "p99_us", 0.0),
                  .p99_9_us = Number(object, "p99_9_us", 0.0),
                  .max_us = Number(object, "max_us", 0.0),
                  .longest_call = Number(object, "longest_call", 0),
                  .slowest_rank = Number(object, "slowest_rank", 0),
                  .fastest_rank = Number(object, "fastest_rank", 0),
                  .fastest_us = Number(object, "fastest_us", 0.0),
                  .preempted = Number<std::int64_t>(object, "preempted", 0),
                  .slept = Number<std::int64_t>(object, "slept", 0),
                  .engine_cpu_us = Number(object, "engine_cpu_us", 0.0),
                  .engine_waiting_us = Number(object, "engine_waiting_us", 0.0),
                  .host_us = Number(object, "host_us", 0.0),
                  .algbw_gb_s = Number(object, "algbw_gb_s", 0.0),
                  .busbw_gb_s = Number(object, "busbw_gb_s", 0.0),
                  .wrong = Number<std::int64_t>(object, "wrong", -1),
                  .device = Text(object, "device"),
                  .buffers = Text(object, "buffers"),
                  .messages = Truth(object, "messages", false),
                  .rewrite = Truth(object, "rewrite", false),
                  .pause_s = Number(object, "pause_s", 0.0),
                  .in_place = Truth(object, "in_place", true),
                  .repeat = Number(object, "repeat", 1),
                  .calls = Number(object, "calls", 0),
                  .predicted_us = Number(object, "predicted_us", 0.0),
                  .variant = VariantOf(object),
                  .link = LinkOf(object)};
  return row;
}

// The objects of a file: {"run": …, "rows": […]}, or one of {"run": …} and then rows in lines of their own. A last line
// without its end is left out where it is no whole object, as of a run that was killed while it wrote the line.
absl::StatusOr<Json> ParseRecord(const std::string& text) {
  Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (whole.is_object() && whole.contains("rows")) return whole;
  whole = {{"run", Json::object()}, {"rows", Json::array()}};
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  const bool last_has_end = absl::EndsWith(text, "\n");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Json line = Json::parse(lines[i], nullptr, /*allow_exceptions=*/false);
    if (!line.is_object()) {
      if (i + 1 == lines.size() && !last_has_end) break;
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, " is no JSON object; write the file with tutti bench --json or --jsonl"));
    }
    if (line.contains("run")) {
      whole["run"] = line["run"];
    } else {
      whole["rows"].push_back(std::move(line));
    }
  }
  return whole;
}

}  // namespace

std::string BenchAbout::settings_in_words() const { return absl::StrJoin(settings, " ", absl::PairFormatter("=")); }

std::vector<std::pair<std::string, std::string>> BenchAbout::lines() const {
  return {{"hosts", absl::StrJoin(hosts, " ")},
          {"rank_hosts", absl::StrJoin(rank_hosts, " ")},
          {"date", date},
          {"version", version},
          {"build", build},
          {"command", command},
          {"ranks", absl::StrCat(ranks)},
          {"nodes", absl::StrCat(places.nodes)},
          {"ranks_per_node", absl::StrCat(places.ranks_per_node)},
          {"transport", transport},
          {"links", links},
          {"processors", processors},
          {"settings", settings_in_words()}};
}

std::string JsonOf(const BenchAbout& about) {
  return Json{
      {"hosts", about.hosts},         {"rank_hosts", about.rank_hosts}, {"date", about.date},
      {"version", about.version},     {"build", about.build},           {"command", about.command},
      {"ranks", about.ranks},         {"nodes", about.places.nodes},    {"ranks_per_node", about.places.ranks_per_node},
      {"transport", about.transport}, {"links", about.links},           {"processors", about.processors},
      {"settings", about.settings}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string JsonOf(const BenchRow& row) { return ObjectOf(row).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string CsvHeading() {
  const Json object = ObjectOf(BenchRow());
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return absl::StrJoin(names, ",");
}

std::string CsvOf(const BenchRow& row) {
  const Json object = ObjectOf(row);
  std::vector<std::string> fields;
  for (const auto& [key, value] : object.items()) fields.push_back(CsvField(value));
  return absl::StrJoin(fields, ",");
}

absl::StatusOr<BenchRecord> ReadRecord(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) return text.status();
  const auto refuse = [&](const absl::Status& why) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": ", why.message()));
  };
  absl::StatusOr<Json> whole = ParseRecord(*text);
  if (!whole.ok()) return refuse(whole.status());
  BenchRecord record{.name = std::filesystem::path(file).stem().string(), .about = {}, .rows = {}};
  const auto run = whole->find("run");
  if (run != whole->end() && run->is_object()) record.about = AboutOf(*run);
  for (const Json& object : (*whole)["rows"]) {
    absl::StatusOr<BenchRow> row = RowOf(object);
    if (!row.ok()) return refuse(row.status());
    record.rows.push_back(*std::move(row));
  }
  if (record.rows.empty()) return refuse(absl::InvalidArgumentError("no rows; nothing was measured"));
  return record;
}

}  // namespace tutti::cli
