#include "bindings/cli/bench_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace tutti::cli {
namespace {

std::string Time(double microseconds) {
  const int digits = microseconds < 10 ? 2 : microseconds < 1000 ? 1 : 0;
  return absl::StrFormat("%.*f", digits, microseconds);
}

std::string Wrong(const BenchRow& row) { return row.wrong < 0 ? "N/A" : absl::StrCat(row.wrong); }

}  // namespace

std::string TableHeading(bool on_device) {
  constexpr char kFormat[] = "#%12s %12s %8s %10s %9s %8s %8s %7s %9s %9s %9s%s  %-18s %9s";
  const auto host = [on_device](absl::string_view text) {
    return on_device ? absl::StrFormat(" %9s", text) : std::string();
  };
  return absl::StrCat(absl::StrFormat(kFormat, "size", "count", "type", "op", "time", "algbw", "busbw", "#wrong", "p50",
                                      "p99", "max", host("host"), "schedule", "predicted"),
                      "\n",
                      absl::StrFormat(kFormat, "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                                      "(us)", "(us)", host("(us)"), "", "(us)"));
}

std::string TableLine(const BenchRow& row) {
  const std::string how = row.library == "nccl" ? "(raw NCCL)"
                          : row.codec.empty()   ? row.schedule
                                                : absl::StrCat("codec=", row.codec);
  return absl::StrFormat(" %12d %12d %8s %10s %9s %8.2f %8.2f %7s %9s %9s %9s%s  %-18s %9s", row.bytes, row.count,
                         Name(row.dtype), row.op, Time(row.p50_us), row.algbw_gb_s, row.busbw_gb_s, Wrong(row),
                         Time(row.p50_us), Time(row.p99_us), Time(row.max_us),
                         row.device == "cuda" ? absl::StrFormat(" %9s", Time(row.host_us)) : "", how,
                         row.schedule.empty() ? "-" : Time(row.predicted_us));
}

std::string TableFooting(absl::Span<const BenchRow> rows) {
  std::int64_t wrong = 0;
  bool checked = true;
  bool exact = true;
  for (const BenchRow& row : rows) {
    checked = checked && row.wrong >= 0;
    wrong += row.wrong;
    exact = exact && row.codec.empty();
  }
  if (!checked) return "# results were not checked";
  if (wrong > 0) return absl::StrCat("# WRONG: ", wrong, " elements");
  return exact ? "# every result was right"
               : "# every result was right, or equal on all ranks where a codec encoded it";
}

std::string Json(absl::Span<const BenchRow> rows) {
  std::string text = "{\"rows\": [";
  const char* separator = "\n";
  const auto if_any = [](bool any, const nlohmann::ordered_json& value) {
    return any ? value : nlohmann::ordered_json(nullptr);
  };
  for (const BenchRow& row : rows) {
    const bool has_schedule = !row.schedule.empty();
    const nlohmann::ordered_json json = {
        {"collective", row.collective},
        {"library", row.library},
        {"schedule", if_any(has_schedule, row.schedule)},
        {"codec", if_any(!row.codec.empty(), row.codec)},
        {"transport", row.transport},
        {"ranks", row.ranks},
        {"bytes", row.bytes},
        {"dtype", std::string(Name(row.dtype))},
        {"op", row.op},
        {"p50_us", row.p50_us},
        {"p99_us", row.p99_us},
        {"max_us", row.max_us},
        {"host_us", if_any(row.device == "cuda", row.host_us)},
        {"algbw_gb_s", row.algbw_gb_s},
        {"busbw_gb_s", row.busbw_gb_s},
        {"wrong", if_any(row.wrong >= 0, row.wrong)},
        {"device", row.device},
        {"buffers", row.buffers},
        {"rewrite", row.rewrite},
        {"in_place", row.in_place},
        {"calls", row.calls},
        {"predicted_us", if_any(has_schedule, row.predicted_us)},
    };
    absl::StrAppend(&text, separator, json.dump());
    separator = ",\n";
  }
  return text + "\n]}\n";
}

}  // namespace tutti::cli
