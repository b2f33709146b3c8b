#include "tests/churn/blame.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tutti::churn {
namespace {

// The numbers of the first list of numbers that directly follows `words` in `text`.
std::vector<Rank> NumbersAfter(const std::string& text, absl::string_view words) {
  std::vector<Rank> numbers;
  for (std::size_t at = 0; numbers.empty() && (at = text.find(std::string(words), at)) != std::string::npos;) {
    at += words.size();
    while (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at]))) {
      char* end = nullptr;
      numbers.push_back(static_cast<Rank>(std::strtol(text.c_str() + at, &end, 10)));
      at = static_cast<std::size_t>(end - text.c_str());
      if (text.compare(at, 2, ", ") == 0) at += 2;
    }
  }
  return numbers;
}

absl::StatusCode ExpectedCode(Fault fault) {
  switch (fault) {
    case Fault::kStop:
      return absl::StatusCode::kDeadlineExceeded;
    case Fault::kAbort:
      return absl::StatusCode::kAborted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// Whether `error` says that a member has left a group which the fault itself does not end: a group without the victim
// or, after an abort, which ends one communicator but not the groups made from it, any group. Members whose calls in
// other groups fail leave such a group.
bool EndsWithAMember(const Round& round, absl::StatusCode code, const std::string& error) {
  const std::vector<Rank> members = NumbersAfter(error, kOfGroup);
  const auto is_member = [&](Rank rank) { return std::find(members.begin(), members.end(), rank) != members.end(); };
  if (is_member(round.victim) && round.fault != Fault::kAbort) return false;
  const std::vector<Rank> blamed = BlamedRanks(error);
  return code == absl::StatusCode::kUnavailable && absl::StrContains(error, "has left") && blamed.size() == 1 &&
         is_member(blamed.front());
}

// Whether `error` is of a wait for ranks to join: the store does not notice the death of a rank that has not yet said
// anything to the store.
bool NeverCame(const Round& round, const std::string& error) {
  return round.fault == Fault::kKillJoin &&
         (absl::StrContains(error, "joining job") || absl::StrContains(error, "has not found rank"));
}

}  // namespace

std::vector<Rank> BlamedRanks(const std::string& text) {
  const std::string error = text.substr(0, text.find("; known, too: "));
  for (const absl::string_view words : {"missing ranks: ", " for rank ", "not found rank ", "rank "}) {
    if (std::vector<Rank> ranks = NumbersAfter(error, words); !ranks.empty()) return ranks;
  }
  return {};
}

std::optional<Finding> JudgeError(const Round& round, absl::StatusCode code, const std::string& error) {
  if (EndsWithAMember(round, code, error)) return std::nullopt;
  const std::vector<Rank> blamed = BlamedRanks(error);
  const std::string names = blamed.empty() ? "no rank" : absl::StrCat("rank ", absl::StrJoin(blamed, ", "));
  if (blamed != std::vector<Rank>{round.victim}) {
    return Finding{Kind::kWrongBlame, absl::StrCat("names ", names, " and not rank ", round.victim, ": ", error)};
  }
  const absl::StatusCode expected = ExpectedCode(round.fault);
  if (code == expected) return std::nullopt;
  if (code == absl::StatusCode::kDeadlineExceeded) {
    if (NeverCame(round, error)) return std::nullopt;
    return Finding{Kind::kLateNews, absl::StrCat("told by a deadline only: ", error)};
  }
  return Finding{Kind::kWrongBlame, absl::StrCat("should be ", absl::StatusCodeToString(expected), ": ", error)};
}

}  // namespace tutti::churn
