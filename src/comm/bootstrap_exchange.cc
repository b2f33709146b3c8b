#include "comm/bootstrap_exchange.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "comm/agreement_fields.h"
#include "store/byte_order.h"
#include "tutti/bootstrap.h"
#include "tutti/rounding.h"

namespace tutti {
namespace {

// The most missing ranks that an error lists; further ranks are counted only.
constexpr std::size_t kMaxListed = 8;
// The limits on naming the missing ranks, which takes one look at the store for each rank, after the deadline.
constexpr int kMaxLooks = 1024;
constexpr absl::Duration kNamingLimit = absl::Milliseconds(100);
// The time that rank 0, which may serve the store, gives the others to hear why it gives up.
constexpr absl::Duration kTellingLimit = absl::Milliseconds(500);

absl::Status CheckRank(absl::string_view name, Rank rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("exchange '", name, "': rank ", rank, " of ", size));
}

// A key of a rank holds what the rank contributes, or a note of a rank that gave up: which ranks were missing.
constexpr absl::string_view kContribution = "=";
constexpr absl::string_view kGivenUp = "!";    // the note in the place of a rank that was missing
constexpr absl::string_view kWithdrawn = "-";  // the note in the place of a rank that came, and gave up
// The note of rank 0 in the place of what it would hand out: the error about a rank that is gone. Also the note of a
// rank that takes no part any more, or never does, wherever others may wait for that rank.
constexpr absl::string_view kGone = "~";

bool IsNote(absl::string_view value) { return !absl::StartsWith(value, kContribution); }

Rank NameOf(const MeetingMembers* members, Rank rank) { return members == nullptr ? rank : members->ranks[rank]; }

// In place of the numbers of missing ranks.
constexpr absl::string_view kUnknown = "not known, because the store does not answer";

struct Missing {
  std::vector<Rank> ranks;
  std::string text;      // the missing ranks as `members` number them: "1, 3"; "" when none is missing
  bool answered = true;  // the store has answered every look
};

// Which ranks from `first` on have not come to contribute under `prefix`. Bounded, whatever the size of the world and
// the state of the store: the caller has waited for long enough already.
Missing FindMissing(Store& store, absl::string_view prefix, Rank first, int size, const MeetingMembers* members) {
  const std::int64_t end_ns = NanosIn(kNamingLimit);
  const Rank end = static_cast<Rank>(std::min<std::int64_t>(size, std::int64_t{first} + kMaxLooks));
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
  if (!missing.answered && missing.ranks.empty()) {
    missing.text = std::string(kUnknown);
    return missing;
  }
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

// Leaves a note in the place of each missing contribution, at `handed_out` (unless that is ""), and in the place of
// `own`. Other ranks that wait there then hear why this rank gave up, and not only that this rank is gone. A rank that
// comes later sees by the note that the contribution is from a rank that gave up.
void GiveUp(Store& store, absl::string_view prefix, absl::string_view handed_out, Rank own, Missing missing) {
  if (!missing.answered) return;
  const std::int64_t end_ns = NanosIn(kNamingLimit);
  missing.ranks.resize(std::min(missing.ranks.size(), kMaxListed));
  const auto leave_note = [&](absl::string_view key, absl::string_view kind) {
    return store.Set(key, absl::StrCat(kind, missing.text), TimeAt(end_ns)).ok();
  };
  for (const Rank rank : missing.ranks) {
    if (!leave_note(absl::StrCat(prefix, rank), kGivenUp)) return;
  }
  if (!handed_out.empty() && !leave_note(handed_out, kGivenUp)) return;
  leave_note(absl::StrCat(prefix, own), kWithdrawn);
}

// Text such as "rank 1" or "ranks 1, 3".
std::string RanksOf(absl::string_view missing) {
  if (missing == kUnknown) return absl::StrCat("ranks that are ", missing);
  return absl::StrCat(absl::StrContains(missing, ",") ? "ranks " : "rank ", missing);
}

// The error about ranks that did not come before a deadline: that of another rank, perhaps, for which `own` itself was
// missing.
absl::Status TooLate(absl::string_view missing, Rank own, const MeetingMembers* members) {
  if (missing.empty()) {
    return absl::DeadlineExceededError("all ranks have contributed, but the last of them only after the deadline");
  }
  std::string text = absl::StrCat("missing ranks: ", missing);
  if (members != nullptr) {
    text =
        absl::StrCat(RanksOf(missing), absl::StrContains(missing, ",") ? " have" : " has", " not come within ",
                     absl::FormatDuration(members->limit),
                     "; every member must call Group with the same members, in the same order, and with the same name");
  }
  const std::string name = absl::StrCat(NameOf(members, own));
  const std::vector<absl::string_view> names = absl::StrSplit(missing, ", ");
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    absl::StrAppend(&text, "; rank ", name, " is this one, which was too late for another rank, whose deadline had ",
                    "passed: start the ranks closer together, or let all wait for longer");
  }
  return absl::DeadlineExceededError(text);
}

absl::Status ErrorOfNote(absl::string_view note, Rank own, const MeetingMembers* members) {
  if (absl::ConsumePrefix(&note, kGone)) return absl::UnavailableError(note);
  return TooLate(absl::ClippedSubstr(note, 1), own, members);
}

std::string Left(std::int64_t end_ns) { return absl::FormatDuration(absl::Ceil(LeftUntil(end_ns), absl::Seconds(1))); }

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

namespace {

// The key of a part of what rank 0 hands out.
std::string KeyOfPart(absl::string_view hand_out, std::size_t part) { return absl::StrCat(hand_out, part); }

// Waits for values that ranks leave under a prefix. `hand_out` begins the keys of what rank 0 makes of them; "": rank 0
// hands nothing out. The other arguments are those of GetFromAll.
class Waiter {
 public:
  Waiter(Store& store, absl::string_view prefix, absl::string_view hand_out, Rank own, int size, std::int64_t end_ns,
         const LateRanksReport& late, const MeetingMembers* members)
      : store_(store),
        prefix_(prefix),
        hand_out_(hand_out),
        own_(own),
        size_(size),
        end_ns_(end_ns),
        late_(late),
        members_(members) {
    if (late.report != nullptr) report_ns_ = NanosIn(late.patience);
    // Just before the deadline the store is asked once: a store that is silent by then is not asked beyond the
    // deadline.
    if (end_ns != kNeverNanos) trial_ns_ = end_ns - absl::ToInt64Nanoseconds(kNamingLimit);
    if (trial_ns_ <= MonotonicNanos()) trial_ns_ = kNeverNanos;
  }

  // Returns the value that `rank` has contributed, once the ranks before `rank` have contributed.
  absl::StatusOr<std::string> AwaitRank(Rank rank) { return Await(absl::StrCat(prefix_, rank), rank); }

  // Returns a part of the values that rank 0 hands out once all ranks have contributed.
  absl::StatusOr<std::string> AwaitPart(std::size_t part) {
    awaits_rank_0_ = true;
    return Await(KeyOfPart(hand_out_, part), 0);
  }

 private:
  // The key of the first part that rank 0 hands out; "": rank 0 hands nothing out.
  std::string handed_out() const { return hand_out_.empty() ? "" : KeyOfPart(hand_out_, 0); }

  // The value of `key`, without its mark. Every rank from `first` on may be missing.
  absl::StatusOr<std::string> Await(const std::string& key, Rank first) {
    const auto on_gone = [&](Rank gone) { return HearOfEnd(gone, first, key); };
    std::optional<Missing> silent;
    while (true) {
      const std::int64_t until_ns = std::min({end_ns_, report_ns_, trial_ns_});
      absl::StatusOr<std::string> value = store_.Get(key, TimeAt(until_ns), on_gone);
      if (value.ok() && IsNote(*value)) {
        HandOn(*value);
        return ErrorOfNote(*value, own_, members_);
      }
      if (value.ok()) return value->substr(kContribution.size());
      if (!absl::IsDeadlineExceeded(value.status())) return value.status();
      Missing missing = silent ? *silent : FindMissing(store_, prefix_, first, size_, members_);
      if (missing.text.empty() && awaits_rank_0_) missing.text = absl::StrCat(NameOf(members_, 0));
      if (until_ns == end_ns_) {
        GiveUp(store_, prefix_, handed_out(), own_, missing);
        return TooLate(missing.text, own_, members_);
      }
      if (until_ns == report_ns_) {
        if (!missing.text.empty()) late_.report(missing.text);
        report_ns_ = kNeverNanos;
      } else {
        if (!missing.answered) silent = missing;
        trial_ns_ = kNeverNanos;
      }
    }
  }

  // A rank that is gone has perhaps contributed before its end; if not, nobody needs to wait for that rank any longer.
  // Rank 0 has to hand out `key`, too, where that is awaited.
  absl::Status HearOfEnd(Rank gone, Rank first, const std::string& key) {
    if (gone < first || gone >= size_ || contributed_.contains(gone)) return absl::OkStatus();
    const std::string owed = awaits_rank_0_ && gone == 0 ? key : absl::StrCat(prefix_, gone);
    absl::Status status = store_.Look(owed, TimeAt(end_ns_)).status();
    if (status.ok()) contributed_.insert(gone);
    if (!absl::IsNotFound(status)) return status;
    absl::Status is_gone = RankIsGone(NameOf(members_, gone));
    HandOn(absl::StrCat(kGone, is_gone.message()));
    return is_gone;
  }

  // Leaves the note with which rank 0 gives up to those that wait for what rank 0 would hand out, and for which it
  // would be gone itself.
  void HandOn(const std::string& note) {
    if (own_ != 0 || hand_out_.empty()) return;
    store_.Set(handed_out(), note, TimeAt(NanosIn(kNamingLimit))).IgnoreError();
  }

  Store& store_;
  const absl::string_view prefix_;
  const absl::string_view hand_out_;
  const Rank own_;
  const int size_;
  const std::int64_t end_ns_;
  const LateRanksReport late_;
  const MeetingMembers* const members_;
  std::int64_t report_ns_ = kNeverNanos;
  std::int64_t trial_ns_ = kNeverNanos;
  bool awaits_rank_0_ = false;             // all others have contributed once rank 0 hands out
  absl::flat_hash_set<Rank> contributed_;  // ranks that are gone, after they have contributed
};

// Leaves the values of all ranks to the other ranks: each value after its length, in parts as long as a store takes.
// The first part comes last: a rank that finds the first part finds the others. Returns how many parts there are.
absl::StatusOr<std::size_t> HandOut(Store& store, absl::string_view hand_out, const std::vector<std::string>& values,
                                    std::int64_t end_ns) {
  std::string all;
  for (const std::string& value : values) {
    AppendInteger(static_cast<std::uint32_t>(value.size()), all);
    all += value;
  }
  const std::size_t most = kMaxValueBytes - kContribution.size();
  const std::size_t parts = DivideRoundingUp(all.size(), most);
  for (std::size_t part = parts; part-- > 0;) {
    const absl::string_view bytes = absl::string_view(all).substr(part * most, most);
    const absl::Status status =
        store.Set(KeyOfPart(hand_out, part), absl::StrCat(kContribution, bytes), TimeAt(end_ns));
    if (!status.ok()) return status;
  }
  return parts;
}

// Returns the values that HandOut has left, once they are there.
absl::StatusOr<std::vector<std::string>> TakeHandedOut(Waiter waiter, int size) {
  std::string all;
  std::size_t parts = 0;
  std::vector<std::string> values;
  absl::string_view rest;
  const auto read_on = [&] {
    const absl::StatusOr<std::string> part = waiter.AwaitPart(parts++);
    if (!part.ok()) return part.status();
    all = absl::StrCat(rest, *part);
    rest = all;
    return absl::OkStatus();
  };
  while (values.size() < static_cast<std::size_t>(size)) {
    absl::string_view value = rest;
    std::uint32_t bytes = 0;
    if (TakeInteger(value, bytes) && value.size() >= bytes) {
      values.emplace_back(value.substr(0, bytes));
      rest = value.substr(bytes);
    } else if (absl::Status status = read_on(); !status.ok()) {
      return status;
    }
  }
  return values;
}

// Returns the values that all ranks have contributed, in rank order.
absl::StatusOr<std::vector<std::string>> Collect(Waiter waiter, int size) {
  std::vector<std::string> values;
  while (values.size() < static_cast<std::size_t>(size)) {
    absl::StatusOr<std::string> value = waiter.AwaitRank(static_cast<Rank>(values.size()));
    if (!value.ok()) return value.status();
    values.push_back(*std::move(value));
  }
  return values;
}

// The keys of an exchange. The kind of a key comes before the name: one exchange may be named "x" and another one
// "x/read".
struct Keys {
  explicit Keys(absl::string_view name)
      : in(absl::StrCat("exchange/in/", name, "/")),
        out(absl::StrCat("exchange/out/", name, "/")),
        has_read(absl::StrCat("exchange/read/", name, "/")) {}

  std::string in;        // begins the keys of what each rank contributes
  std::string out;       // begins the keys of what rank 0 hands out
  std::string has_read;  // begins the keys by which each rank says that it has read that
};

// The note of a rank that has met `cause`.
std::string NoteOfAbsence(Rank rank, const absl::Status& cause) {
  return absl::StrCat(kGone, "rank ", rank, " has given up: ", cause.message());
}

// Leaves the error in all places where others may wait for `own`, which takes no part: its process lives on, and no
// other rank would hear that it is gone. Rank 0 waits for a contribution, perhaps of a rank that is late, or until
// `own` has read; the others wait for what rank 0 hands out. The place of that comes last, so that the note stays there
// where rank 0 hands out meanwhile.
void TellOfAbsence(Store& store, const Keys& keys, Rank own, int size, const MeetingMembers* members,
                   const absl::Status& cause) {
  std::vector<Rank> late = FindMissing(store, keys.in, 0, size, members).ranks;
  late.resize(std::min(late.size(), kMaxListed));
  std::vector<std::string> places = {absl::StrCat(keys.in, own), absl::StrCat(keys.has_read, own)};
  for (const Rank rank : late) places.push_back(absl::StrCat(keys.in, rank));
  const std::string note = NoteOfAbsence(NameOf(members, own), cause);
  const std::int64_t end_ns = NanosIn(kNamingLimit);
  for (const std::string& place : places) store.Set(place, note, TimeAt(end_ns)).IgnoreError();
  // Most ranks wait here, so the time for this note is its own.
  store.Set(KeyOfPart(keys.out, 0), note, TimeAt(NanosIn(kNamingLimit))).IgnoreError();
}

// Waits, as rank 0, until the others have heard that the exchange has failed, or are gone, or kTellingLimit has passed:
// the store may end with the process of rank 0.
void AwaitReaders(Store& store, const Keys& keys, int size) {
  const std::int64_t end_ns = NanosIn(kTellingLimit);
  for (Rank rank = 1; rank < size && MonotonicNanos() < end_ns; ++rank) {
    const auto on_gone = [rank](Rank gone) { return gone == rank ? RankIsGone(gone) : absl::OkStatus(); };
    store.Get(absl::StrCat(keys.has_read, rank), TimeAt(end_ns), on_gone).status().IgnoreError();
  }
}

// Does what ExchangeBlobs does, with three requests of each rank and 4 N more of rank 0: N ranks that each asked for
// every other rank's value would make N² requests. Errors begin with `what`; on rank 0, `late` is told which ranks are
// late.
absl::StatusOr<std::vector<std::string>> Exchange(Store& store, absl::string_view name, absl::string_view what,
                                                  Rank rank, int size, absl::string_view blob, std::int64_t end_ns,
                                                  const LateRanksReport& late, const MeetingMembers* members) {
  const Keys keys(name);
  const auto give_up = [&](const absl::Status& status, absl::string_view where = "") {
    if (absl::IsCancelled(status)) TellOfAbsence(store, keys, rank, size, members, status);
    if (members == nullptr && rank == 0) AwaitReaders(store, keys, size);
    if (members == nullptr && rank != 0) {  // for which rank 0 waits
      store.Set(absl::StrCat(keys.has_read, rank), NoteOfAbsence(rank, status), TimeAt(NanosIn(kNamingLimit)))
          .IgnoreError();
    }
    return absl::Status(status.code(), absl::StrCat(what, ": ", where, status.message()));
  };
  if (absl::Status status = Contribute(store, keys.in, rank, blob, end_ns); !status.ok()) return status;
  if (rank != 0) {
    absl::StatusOr<std::vector<std::string>> blobs =
        TakeHandedOut(Waiter(store, keys.in, keys.out, rank, size, end_ns, {}, members), size);
    if (!blobs.ok()) return give_up(blobs.status());
    if (absl::Status status = Contribute(store, keys.has_read, rank, "", end_ns); !status.ok()) return status;
    return blobs;
  }

  absl::StatusOr<std::vector<std::string>> blobs =
      Collect(Waiter(store, keys.in, keys.out, rank, size, end_ns, late, members), size);
  if (!blobs.ok()) return give_up(blobs.status());
  // A rank that has given up after rank 0 took its contribution has left a note here.
  const absl::StatusOr<std::string> note = store.Look(KeyOfPart(keys.out, 0), TimeAt(end_ns));
  if (note.ok() && IsNote(*note)) return give_up(ErrorOfNote(*note, rank, members));
  if (!note.ok() && !absl::IsNotFound(note.status())) return note.status();
  const absl::StatusOr<std::size_t> parts = HandOut(store, keys.out, *blobs, end_ns);
  if (!parts.ok()) return parts.status();
  // Rank 0, which may serve the store, leaves after all others have read, and cleans up.
  if (absl::Status status = Contribute(store, keys.has_read, rank, "", end_ns); !status.ok()) return status;
  if (absl::Status status = GetFromAll(store, keys.has_read, rank, size, end_ns, {}, members).status(); !status.ok()) {
    return give_up(status, "not every rank has read it: ");
  }
  std::vector<std::string> used;
  for (Rank r = 0; r < size; ++r) used.insert(used.end(), {absl::StrCat(keys.in, r), absl::StrCat(keys.has_read, r)});
  for (std::size_t part = 0; part < *parts; ++part) used.push_back(KeyOfPart(keys.out, part));
  for (const std::string& key : used) {
    if (absl::Status status = store.Delete(key, TimeAt(end_ns)); !status.ok()) return status;
  }
  return blobs;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, Rank own, int size,
                                                    std::int64_t end_ns, const LateRanksReport& late,
                                                    const MeetingMembers* members) {
  return Collect(Waiter(store, prefix, "", own, size, end_ns, late, members), size);
}

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
  const std::string what = absl::StrCat("exchange '", name, "' of ", size, " ranks");
  return ExchangeUntil(store, name, what, rank, size, blob, NanosAt(deadline));
}

absl::StatusOr<std::vector<std::string>> ExchangeUntil(Store& store, absl::string_view name, absl::string_view what,
                                                       Rank rank, int size, absl::string_view blob,
                                                       std::int64_t end_ns) {
  return Exchange(store, name, what, rank, size, blob, end_ns, LateRanksOnStderr(std::string(what), end_ns), nullptr);
}

absl::Status StayAway(Store& store, absl::string_view name, Rank rank, int size, absl::Status cause) {
  if (size == 1) return cause;
  TellOfAbsence(store, Keys(name), rank, size, nullptr, cause);
  if (rank == 0) AwaitReaders(store, Keys(name), size);
  return cause;
}

absl::Status CheckAgreement(Store& store, absl::string_view name, Rank rank, int size,
                            const std::vector<std::pair<std::string, std::string>>& fields, absl::Time deadline) {
  absl::StatusOr<std::vector<std::string>> blobs =
      ExchangeBlobs(store, absl::StrCat("agreement/", name), rank, size, PackFields(fields), deadline);
  if (!blobs.ok()) return blobs.status();
  return CompareFields(name, *blobs);
}

}  // namespace tutti
