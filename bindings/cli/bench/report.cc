#include "bindings/cli/bench/report.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bindings/cli/bench/wanted_processor.h"

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
  return absl::StrCat("\n# Avg bus bandwidth    : ", GigabytesPerSecond(sum / count),
                      library == "nccl" ? " (raw NCCL)" : "");
}

// The wrong elements of the rows that were checked.
std::int64_t WrongElements(absl::Span<const BenchRow> rows) {
  std::int64_t wrong = 0;
  for (const BenchRow& row : rows) wrong += std::max<std::int64_t>(row.wrong, 0);
  return wrong;
}

bool AllAreChecked(absl::Span<const BenchRow> rows) {
  return absl::c_all_of(rows, [](const BenchRow& row) { return row.wrong >= 0; });
}

std::string Verdict(absl::Span<const BenchRow> rows) {
  if (const std::int64_t wrong = WrongElements(rows); wrong > 0) return absl::StrCat("# WRONG: ", wrong, " elements");
  if (!AllAreChecked(rows)) return "# results were not checked";
  const bool exact = absl::c_all_of(rows, [](const BenchRow& row) { return row.codec.empty(); });
  return exact ? "# every result was right"
               : "# every result was right, or equal on all ranks where a codec encoded it";
}

// Why the bus bandwidth of some rows is not that of a link; "" where it is.
std::string NotesOnBandwidth(absl::Span<const BenchRow> rows) {
  std::string notes;
  if (absl::c_any_of(rows, [](const BenchRow& row) { return !row.codec.empty(); })) {
    absl::StrAppend(&notes,
                    "\n# busbw with a codec counts the bytes of the values, of which fewer travel: it may be above "
                    "the rate of a link");
  }
  if (absl::c_any_of(rows, [](const BenchRow& row) { return row.places.share_links(); })) {
    absl::StrAppend(&notes,
                    "\n# busbw is reckoned as if each rank had a link of its own: the ranks of a node share one, so "
                    "that busbw is not its rate");
  }
  return notes;
}

// A rank, and its host where there are several.
std::string NameOf(Rank rank, const BenchAbout& about) {
  const auto index = static_cast<std::size_t>(rank);
  if (about.hosts.size() < 2 || index >= about.rank_hosts.size()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (", about.rank_hosts[index], ")");
}

// Whether processors were what long calls waited for.
std::string CauseLine(const BenchRow& row, const ProcessorWaits& waits, const BenchAbout& about) {
  const std::string most =
      waits.longest_us > 0
          ? absl::StrFormat(
                "%s stood in line for a processor longest, for %s us: %s", NameOf(waits.rank, about),
                Microseconds(waits.longest_us),
                WantedProcessor(waits.longest_us, row.max_us, row.p50_us)
                    ? "that made the call long"
                    : "something else made the call long, such as a link, or a rank that slept or was stopped")
          : "no rank stood in line for a processor";
  return absl::StrFormat("#   in call %d %s; long for want of a processor: %d of the %d longest\n", row.longest_call,
                         most, waits.slow_calls_in_line, waits.slow_calls);
}

// A note where ranks ran on one processor by turns, and what to do about it; "" where they did not.
std::string NoteOnProcessors(absl::Span<const BenchRow> rows) {
  const auto shares = [](const BenchRow& row) {
    return 2 * row.preempted > static_cast<std::int64_t>(row.calls) * row.ranks;
  };
  const auto found = absl::c_find_if(rows, shares);
  if (found == rows.end()) return "";
  return absl::StrCat("\n# ranks lost their processor ", found->preempted, " times in ", found->calls, " calls of ",
                      found->bytes,
                      " bytes: they shared it with each other, or with other programs; --bind keeps ranks apart");
}

}  // namespace

std::string DoubtOn(absl::Span<const BenchRow> rows) {
  const std::int64_t wrong = WrongElements(rows);
  if (wrong > 0) return absl::StrCat("results were wrong (", wrong, wrong == 1 ? " element)" : " elements)");
  return AllAreChecked(rows) ? "" : "results were not checked";
}

std::string DoubtOn(const BuildSummary& build) {
  if (build.is_optimized && !build.is_sanitized) return "";
  return absl::StrCat("times are longer than those of a release: this build of tutti is of ", build.in_words());
}

std::string Microseconds(double microseconds) {
  const int digits = microseconds < 10 ? 2 : microseconds < 1000 ? 1 : 0;
  return absl::StrFormat("%.*f", digits, microseconds);
}

std::string GigabytesPerSecond(double bandwidth) {
  if (bandwidth > 0 && bandwidth < 1e-4) return absl::StrFormat("%.1e", bandwidth);  // the width of a column is 8
  int decimals = 2;
  for (double least = 1; bandwidth > 0 && bandwidth < least; least /= 10) ++decimals;
  return absl::StrFormat("%.*f", decimals, bandwidth);
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
  return absl::StrFormat(" %12d %12d %8s %10s %9s %8s %8s %7s %9s %9s %9s%s  %-18s %9s%s", row.bytes, row.count,
                         Name(row.dtype), row.op, Microseconds(row.time_us), GigabytesPerSecond(row.algbw_gb_s),
                         GigabytesPerSecond(row.busbw_gb_s), Wrong(row), Microseconds(row.p50_us),
                         Microseconds(row.p99_us), Microseconds(row.max_us),
                         columns.host ? absl::StrFormat(" %9s", Microseconds(row.host_us)) : "", how,
                         row.predicted_us > 0 ? Microseconds(row.predicted_us) : "-",
                         !columns.place ? ""
                         : row.in_place ? "  in"
                                        : "  out");
}

std::string LatencyLines(const BenchRow& row, const BenchAbout& about) {
  const std::string spread =
      absl::StrFormat("#   p90 %s, p95 %s, p99.9 %s, max %s us on %s in call %d of %d, through which %s was in %s us\n",
                      Microseconds(row.p90_us), Microseconds(row.p95_us), Microseconds(row.p99_9_us),
                      Microseconds(row.max_us), NameOf(row.slowest_rank, about), row.longest_call, row.calls,
                      NameOf(row.fastest_rank, about), Microseconds(row.fastest_us));
  const bool is_prepared = row.rewrite || row.pause_s > 0;
  const std::string all = absl::StrFormat(
      "#   in all calls%s ranks lost their processor %d times and slept %d times; the engine's threads took %s us of "
      "processor time a call, %s us of it to wait for peers",
      is_prepared ? " and what comes before each (rewriting, pause, meeting)" : "", row.preempted, row.slept,
      Microseconds(row.engine_cpu_us), Microseconds(row.engine_waiting_us));
  return absl::StrCat(spread, row.waits.has_value() ? CauseLine(row, *row.waits, about) : "", all);
}

std::string TableFooting(absl::Span<const BenchRow> rows, bool may_bind) {
  return absl::StrCat(Verdict(rows), AverageOf(rows, "tutti"), AverageOf(rows, "nccl"), NotesOnBandwidth(rows),
                      may_bind ? NoteOnProcessors(rows) : "");
}

}  // namespace tutti::cli
