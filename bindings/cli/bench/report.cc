#include "bindings/cli/bench/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tutti::cli {
namespace {

std::string Wrong(const BenchRow& row) { return row.wrong < 0 ? "N/A" : absl::StrCat(row.wrong); }

// The line that nccl-tests ends with; "" where no row of the library moves bytes.
std::string AverageOf(absl::Span<const BenchRow> rows, const std::string& library) {
  double sum = 0;
  int count = 0;
  for (const BenchRow& row : rows) {
    if (row.library != library || row.bytes == 0) continue;
    sum += row.busbw_gb_s;
    ++count;
  }
  if (count == 0) return "";
  return absl::StrFormat("\n# Avg bus bandwidth    : %.2f%s", sum / count, library == "nccl" ? " (raw NCCL)" : "");
}

std::string Verdict(absl::Span<const BenchRow> rows) {
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

}  // namespace

std::string Microseconds(double microseconds) {
  const int digits = microseconds < 10 ? 2 : microseconds < 1000 ? 1 : 0;
  return absl::StrFormat("%.*f", digits, microseconds);
}

std::string TableHeading(const TableColumns& columns) {
  constexpr char kFormat[] = "#%12s %12s %8s %10s %9s %8s %8s %7s %9s %9s %9s%s  %-18s %9s";
  const auto host = [&](absl::string_view text) {
    return columns.host ? absl::StrFormat(" %9s", text) : std::string();
  };
  return absl::StrCat(absl::StrFormat(kFormat, "size", "count", "type", "op", "time", "algbw", "busbw", "#wrong", "p50",
                                      "p99", "max", host("host"), "schedule", "predicted"),
                      columns.place ? "  place" : "", "\n",
                      absl::StrFormat(kFormat, "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                                      "(us)", "(us)", host("(us)"), "", "(us)"));
}

std::string TableLine(const BenchRow& row, const TableColumns& columns) {
  const std::string how = row.library == "nccl" ? "(raw NCCL)"
                          : row.codec.empty()   ? row.schedule
                                                : absl::StrCat("codec=", row.codec);
  return absl::StrFormat(" %12d %12d %8s %10s %9s %8.2f %8.2f %7s %9s %9s %9s%s  %-18s %9s%s", row.bytes, row.count,
                         Name(row.dtype), row.op, Microseconds(row.p50_us), row.algbw_gb_s, row.busbw_gb_s, Wrong(row),
                         Microseconds(row.p50_us), Microseconds(row.p99_us), Microseconds(row.max_us),
                         columns.host ? absl::StrFormat(" %9s", Microseconds(row.host_us)) : "", how,
                         row.schedule.empty() ? "-" : Microseconds(row.predicted_us),
                         !columns.place ? ""
                         : row.in_place ? "  in"
                                        : "  out");
}

std::string LatencyLine(const BenchRow& row) {
  return absl::StrFormat(
      "#   p50 %s, p99 %s, max %s us on rank %d in call %d of %d, through which rank %d was in %s us; ranks lost their "
      "processor %d times and slept %d times; the engine's threads took %s us of "
      "processor time a call, %s us of it to wait for peers",
      Microseconds(row.p50_us), Microseconds(row.p99_us), Microseconds(row.max_us), row.slowest_rank, row.longest_call,
      row.calls, row.fastest_rank, Microseconds(row.fastest_us), row.preempted, row.slept,
      Microseconds(row.engine_cpu_us), Microseconds(row.engine_waiting_us));
}

std::string TableFooting(absl::Span<const BenchRow> rows) {
  return absl::StrCat(Verdict(rows), AverageOf(rows, "tutti"), AverageOf(rows, "nccl"));
}

}  // namespace tutti::cli
