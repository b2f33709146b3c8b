#include "comm/bootstrap_exchange.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "comm/agreement_fields.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

// The most missing ranks that an error lists; further ranks are counted only.
constexpr std::size_t kMaxListed = 8;
// The limits on naming the missing ranks, which takes one look at the store for each rank, after the deadline.
constexpr int kMostLooks = 1024;
constexpr absl::Duration kNamingLimit = absl::Milliseconds(100);

absl::Status CheckRank(absl::string_view name, Rank rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("exchange '", name, "': rank ", rank, " of ", size));
}

// A key of a rank holds what the rank contributes, or a note of a rank that gave up: which ranks were missing.
constexpr absl::string_view kContribution = "=";
constexpr absl::string_view kGivenUp = "!";    // the note in the place of a rank that was missing
constexpr absl::string_view kWithdrawn = "-";  // the note in the place of a rank that came, and gave up

bool IsNote(absl::string_view value) { return !absl::StartsWith(value, kContribution); }

Rank NameOf(const MeetingMembers* members, Rank rank) { return members == nullptr ? rank : members->ranks[rank]; }

struct Missing {
  std::vector<Rank> ranks;
  std::string text;      // the missing ranks as `members` number them: "1, 3"; "" when none is missing
  bool answered = true;  // the store has answered every look
};

// Which ranks from `first` on have not come to contribute under `prefix`. Bounded, whatever the size of the world and
// the state of the store: the caller has waited for long enough already.
Missing FindMissing(Store& store, absl::string_view prefix, Rank first, int size, const MeetingMembers* members) {
  const std::int64_t end_ns = NanosIn(kNamingLimit);
  const Rank end = static_cast<Rank>(std::min<std::int64_t>(size, std::int64_t{first} + kMostLooks));
  Missing missing;
  std::string withdrawn;  // the note of a rank that has withdrawn
  Rank rank = first;
  for (; rank < end; ++rank) {
    const absl::StatusOr<std::string> value = store.Look(absl::StrCat(prefix, rank), TimeAt(end_ns));
    missing.answered = value.ok() || absl::IsNotFound(value.status());
    if (!missing.answered) break;
    if (!value.ok() || absl::StartsWith(*value, kGivenUp)) missing.ranks.push_back(rank);
    if (value.ok() && absl::StartsWith(*value, kWithdrawn)) withdrawn = value->substr(kWithdrawn.size());
  }
  if (rank == first && first < size) missing.ranks.push_back(rank++);  // the store did not answer the first look
  std::vector<std::string> names;
  for (const Rank late : missing.ranks) names.push_back(absl::StrCat(NameOf(members, late)));
  missing.text = ListUpTo(kMaxListed, names, ", ");
  if (rank < size) {
    absl::StrAppend(&missing.text, names.empty() ? "" : ", and ", "perhaps some ",
                    members == nullptr ? absl::StrCat("from ", rank, " to ", size - 1)
                                       : absl::StrCat("after ", NameOf(members, rank - 1)));
  }
  if (missing.text.empty()) missing.text = std::move(withdrawn);
  return missing;
}

// Leaves a note in the place of each missing contribution, and in that of `own`: other ranks that wait for a missing
// rank then hear why this rank gave up, and not only that this rank is gone; and a rank that comes later does not take
// the contribution of one that has given up for that of one that is there.
void GiveUp(Store& store, absl::string_view prefix, Rank own, Missing missing) {
  if (!missing.answered) return;
  const std::int64_t end_ns = NanosIn(kNamingLimit);
  missing.ranks.resize(std::min(missing.ranks.size(), kMaxListed));
  const auto leave_note = [&](Rank rank, absl::string_view kind) {
    return store.Set(absl::StrCat(prefix, rank), absl::StrCat(kind, missing.text), TimeAt(end_ns)).ok();
  };
  for (const Rank rank : missing.ranks) {
    if (!leave_note(rank, kGivenUp)) return;
  }
  leave_note(own, kWithdrawn);
}

// Text such as "rank 1" or "ranks 1, 3".
std::string RanksOf(absl::string_view missing) {
  return absl::StrCat(absl::StrContains(missing, ",") ? "ranks " : "rank ", missing);
}

absl::Status TooLate(absl::string_view missing, const MeetingMembers* members) {
  if (missing.empty()) {
    return absl::DeadlineExceededError("all ranks have contributed, but the last of them only after the deadline");
  }
  if (members == nullptr) return absl::DeadlineExceededError(absl::StrCat("missing ranks: ", missing));
  return absl::DeadlineExceededError(absl::StrCat(RanksOf(missing), absl::StrContains(missing, ",") ? " have" : " has",
                                                  " not come within ", absl::FormatDuration(members->limit),
                                                  "; every member must call Group with the same members, in ",
                                                  "the same order, and with the same name"));
}

std::string Left(std::int64_t end_ns) { return absl::FormatDuration(absl::Trunc(LeftUntil(end_ns), absl::Seconds(1))); }

LateRanksReport LateMembersOnStderr(std::string what, std::int64_t end_ns) {
  return {.report = [what = std::move(what), end_ns](absl::string_view ranks) {
    const std::string line =
        absl::StrCat("tutti: ", what, " waits for ", RanksOf(ranks), ", for up to ", Left(end_ns), " more\n");
    std::fputs(line.c_str(), stderr);
  }};
}

}  // namespace

LateRanksReport LateRanksOnStderr(std::string where, std::int64_t end_ns) {
  return {.report = [where = std::move(where), end_ns](absl::string_view ranks) {
    const std::string line =
        absl::StrCat("tutti: ", where, ": missing ranks: ", ranks, "; waiting for up to ", Left(end_ns), " more\n");
    std::fputs(line.c_str(), stderr);
  }};
}

absl::Status RankIsGone(Rank rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " is gone, it has died or left"));
}

absl::Status Contribute(Store& store, absl::string_view prefix, Rank rank, absl::string_view value,
                        std::int64_t end_ns) {
  return store.Set(absl::StrCat(prefix, rank), absl::StrCat(kContribution, value), TimeAt(end_ns));
}

absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, Rank own, int size,
                                                    std::int64_t end_ns, const LateRanksReport& late,
                                                    const MeetingMembers* members) {
  std::vector<std::string> values;
  absl::flat_hash_set<Rank> contributed;
  // A rank that is gone has perhaps contributed before its end; if not, nobody needs to wait for that rank any longer.
  const auto on_gone = [&](Rank gone) {
    if (gone < static_cast<Rank>(values.size()) || gone >= size || contributed.contains(gone)) return absl::OkStatus();
    absl::Status status = store.Look(absl::StrCat(prefix, gone), TimeAt(end_ns)).status();
    if (status.ok()) contributed.insert(gone);
    if (!absl::IsNotFound(status)) return status;
    return RankIsGone(NameOf(members, gone));
  };
  std::int64_t report_ns = late.report == nullptr ? kNeverNanos : NanosIn(late.patience);
  // Just before the deadline the store is asked once: a store that is silent by then is not asked beyond the deadline.
  std::int64_t trial_ns = end_ns == kNeverNanos ? kNeverNanos : end_ns - absl::ToInt64Nanoseconds(kNamingLimit);
  if (trial_ns <= MonotonicNanos()) trial_ns = kNeverNanos;
  std::optional<Missing> silent;
  while (values.size() < static_cast<std::size_t>(size)) {
    const auto next = static_cast<Rank>(values.size());
    const std::int64_t until_ns = std::min({end_ns, report_ns, trial_ns});
    absl::StatusOr<std::string> value = store.Get(absl::StrCat(prefix, next), TimeAt(until_ns), on_gone);
    if (value.ok() && IsNote(*value)) return TooLate(absl::ClippedSubstr(*value, 1), members);
    if (value.ok()) {
      values.push_back(value->substr(kContribution.size()));
      silent.reset();
      continue;
    }
    if (!absl::IsDeadlineExceeded(value.status())) return value.status();
    const Missing missing = silent ? *silent : FindMissing(store, prefix, next, size, members);
    if (until_ns == end_ns) {
      GiveUp(store, prefix, own, missing);
      return TooLate(missing.text, members);
    }
    if (until_ns == report_ns) {
      if (!missing.text.empty()) late.report(missing.text);
      report_ns = kNeverNanos;
    } else {
      if (!missing.answered) silent = missing;
      trial_ns = kNeverNanos;
    }
  }
  return values;
}

namespace {
// Does what ExchangeBlobs does. Errors begin with `what`; on rank 0, `late` is told which ranks are late.
absl::StatusOr<std::vector<std::string>> Exchange(Store& store, absl::string_view name, absl::string_view what,
                                                  Rank rank, int size, absl::string_view blob, std::int64_t end_ns,
                                                  const LateRanksReport& late, const MeetingMembers* members) {
  const std::string prefix = absl::StrCat("exchange/", name, "/");
  const std::string has_read = absl::StrCat(prefix, "read/");
  if (absl::Status status = Contribute(store, prefix, rank, blob, end_ns); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> blobs =
      GetFromAll(store, prefix, rank, size, end_ns, rank == 0 ? late : LateRanksReport(), members);
  if (!blobs.ok()) return absl::Status(blobs.status().code(), absl::StrCat(what, ": ", blobs.status().message()));

  // Rank 0, which may serve the store, leaves after all others have read, and cleans up.
  if (absl::Status status = Contribute(store, has_read, rank, "", end_ns); !status.ok()) return status;
  if (rank != 0) return blobs;
  if (absl::Status status = GetFromAll(store, has_read, rank, size, end_ns, {}, members).status(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(what, ": not every rank has read it: ", status.message()));
  }
  for (const absl::string_view keys : {absl::string_view(prefix), absl::string_view(has_read)}) {
    for (Rank r = 0; r < size; ++r) {
      if (absl::Status status = store.Delete(absl::StrCat(keys, r), TimeAt(end_ns)); !status.ok()) return status;
    }
  }
  return blobs;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExchangeInGroup(Store& store, absl::string_view what, Rank place,
                                                         const MeetingMembers& members, absl::string_view blob) {
  const std::int64_t end_ns = NanosIn(members.limit);
  return Exchange(store, "seat", what, place, static_cast<int>(members.ranks.size()), blob, end_ns,
                  LateMembersOnStderr(std::string(what), end_ns), &members);
}

absl::StatusOr<std::vector<std::string>> ExchangeBlobs(Store& store, absl::string_view name, Rank rank, int size,
                                                       absl::string_view blob, absl::Time deadline) {
  if (absl::Status status = CheckRank(name, rank, size); !status.ok()) return status;
  if (const std::size_t most = kMaxValueBytes - kContribution.size(); blob.size() > most) {
    return absl::InvalidArgumentError(absl::StrCat("exchange '", name, "': the blob of rank ", rank, " has ",
                                                   blob.size(), " bytes; at most ", most, " are allowed"));
  }
  const std::int64_t end_ns = NanosAt(deadline);
  const std::string what = absl::StrCat("exchange '", name, "' of ", size, " ranks");
  return Exchange(store, name, what, rank, size, blob, end_ns, LateRanksOnStderr(what, end_ns), nullptr);
}

absl::Status CheckAgreement(Store& store, absl::string_view name, Rank rank, int size,
                            const std::vector<std::pair<std::string, std::string>>& fields, absl::Time deadline) {
  absl::StatusOr<std::vector<std::string>> blobs =
      ExchangeBlobs(store, absl::StrCat("agreement/", name), rank, size, PackFields(fields), deadline);
  if (!blobs.ok()) return blobs.status();
  return CompareFields(name, *blobs);
}

}  // namespace tutti
