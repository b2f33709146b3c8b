#include "tests/churn/report.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti::churn {
namespace {

constexpr std::array<absl::string_view, kKinds> kNames = {"wrong results", "wrong writes", "hangs", "wrong blame",
                                                          "late news",     "errors",       "leaks", "crashes"};

std::string Text(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Microseconds(100)));
}

// What is wrong with `news`, if anything.
std::optional<Finding> Judge(const Durations& news, absl::Duration bound, absl::string_view what) {
  if (news.empty() || news.Percentile(99) <= bound) return std::nullopt;
  return Finding{Kind::kLateNews, absl::StrCat("the p99 ", what, " is ", Text(news.Percentile(99)), ", and may be ",
                                               absl::FormatDuration(bound))};
}

}  // namespace

absl::string_view Name(Kind kind) { return kNames[static_cast<std::size_t>(kind)]; }

absl::Duration Durations::Percentile(std::size_t percent) const {
  std::vector<absl::Duration> sorted = all_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[(sorted.size() * percent + 99) / 100 - 1];
}

std::string Durations::ToString() const {
  if (all_.empty()) return "none";
  const auto at = [this](std::size_t percent) { return Text(Percentile(percent)); };
  return absl::StrCat("p50 ", at(50), ", p99 ", at(99), ", max ", at(100), " of ", all_.size());
}

void Report::Count(const std::vector<Finding>& found) {
  for (const Finding& finding : found) ++findings[static_cast<std::size_t>(finding.kind)];
  if (!found.empty()) ++failed_rounds;
}

std::vector<Finding> Report::LateNews(const NewsBounds& bounds) const {
  std::vector<Finding> late;
  for (std::optional<Finding> finding :
       {Judge(after_kill, bounds.of_kill, "from a kill to the news at a survivor"),
        Judge(after_stop, bounds.of_stop, "from a survivor's deadline to the news of a stop")}) {
    if (finding.has_value()) late.push_back(*std::move(finding));
  }
  return late;
}

std::string Report::ToString() const {
  std::string text =
      absl::StrCat("rounds ", std::accumulate(rounds.begin(), rounds.end(), 0), ", failed ", failed_rounds, ";");
  for (const Fault fault : kAllFaults)
    absl::StrAppend(&text, " ", Name(fault), " ", rounds[static_cast<std::size_t>(fault)]);
  absl::StrAppend(&text, "\nfound:");
  for (int kind = 0; kind < kKinds; ++kind) {
    absl::StrAppend(&text, kind > 0 ? ", " : " ", kNames[static_cast<std::size_t>(kind)], " ",
                    findings[static_cast<std::size_t>(kind)]);
  }
  absl::StrAppend(&text, "\nfrom a kill to the news at each survivor: ", after_kill.ToString(),
                  "\nfrom the deadline to the news of a stop: ", after_stop.ToString(),
                  "\nfrom a rank's leaving to the news: ", after_leave.ToString(), "\n");
  return text;
}

}  // namespace tutti::churn
