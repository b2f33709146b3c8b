#include "comm/bootstrap_exchange.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tutti/bootstrap.h"

namespace tutti {
namespace {

// More missing ranks or differing fields than this are counted, not listed.
constexpr std::size_t kMaxListed = 8;

absl::Status CheckRank(absl::string_view name, Rank rank, int size) {
  if (size >= 1 && rank >= 0 && rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("exchange '", name, "': rank ", rank, " of ", size));
}

std::string List(const std::vector<std::string>& items, absl::string_view separator) {
  const std::size_t shown = std::min(items.size(), kMaxListed);
  std::string text = absl::StrJoin(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), separator);
  if (shown < items.size()) absl::StrAppend(&text, separator, "and ", items.size() - shown, " more");
  return text;
}

// Empty: all have come by now.
std::string MissingRanks(Store& store, absl::string_view prefix, int size) {
  std::vector<std::string> missing;
  for (Rank rank = 0; rank < size; ++rank) {
    if (!store.Get(absl::StrCat(prefix, rank), absl::InfinitePast()).ok()) missing.push_back(absl::StrCat(rank));
  }
  return List(missing, ", ");
}

// "4:name5:value…": lengths first, so that any bytes may be in a field.
std::string Pack(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string packed;
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&packed, key.size(), ":", key, value.size(), ":", value);
  }
  return packed;
}

bool TakePiece(absl::string_view& packed, std::string& piece) {
  const std::size_t colon = packed.find(':');
  std::size_t length = 0;
  if (colon == packed.npos || !absl::SimpleAtoi(packed.substr(0, colon), &length)) return false;
  packed.remove_prefix(colon + 1);
  if (length > packed.size()) return false;
  piece = std::string(packed.substr(0, length));
  packed.remove_prefix(length);
  return true;
}

using Fields = std::vector<std::pair<std::string, std::string>>;

bool Unpack(absl::string_view packed, Fields& fields) {
  while (!packed.empty()) {
    auto& [key, value] = fields.emplace_back();
    if (!TakePiece(packed, key) || !TakePiece(packed, value)) return false;
  }
  return true;
}

const std::string* Find(const Fields& fields, absl::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.first == key; });
  return found == fields.end() ? nullptr : &found->second;
}

// What `rank` has otherwise than rank 0.
void Compare(Rank rank, const Fields& fields, const Fields& of_rank_0, std::vector<std::string>& differences) {
  for (const auto& [key, value] : of_rank_0) {
    const std::string* other = Find(fields, key);
    if (other == nullptr) {
      differences.push_back(absl::StrCat("rank ", rank, " has no ", key, ", rank 0 has ", value));
    } else if (*other != value) {
      differences.push_back(absl::StrCat("rank ", rank, " has ", key, "=", *other, ", rank 0 has ", value));
    }
  }
  for (const auto& [key, value] : fields) {
    if (Find(of_rank_0, key) == nullptr) {
      differences.push_back(absl::StrCat("rank ", rank, " has ", key, "=", value, ", rank 0 has no ", key));
    }
  }
}

}  // namespace

LateRanksReport LateRanksOnStderr(std::string where, absl::Time deadline) {
  return {.report = [where = std::move(where), deadline](absl::string_view ranks) {
    const std::string left = absl::FormatDuration(absl::Trunc(deadline - absl::Now(), absl::Seconds(1)));
    const std::string line =
        absl::StrCat("tutti: ", where, ": missing ranks: ", ranks, "; waiting for up to ", left, " more\n");
    std::fputs(line.c_str(), stderr);
  }};
}

absl::StatusOr<std::vector<std::string>> GetFromAll(Store& store, absl::string_view prefix, int size,
                                                    absl::Time deadline, const LateRanksReport& late) {
  std::vector<std::string> values;
  absl::Time wait_until = late.report == nullptr ? deadline : std::min(deadline, absl::Now() + late.patience);
  while (values.size() < static_cast<std::size_t>(size)) {
    absl::StatusOr<std::string> value = store.Get(absl::StrCat(prefix, values.size()), wait_until);
    if (value.ok()) {
      values.push_back(*std::move(value));
      continue;
    }
    if (!absl::IsDeadlineExceeded(value.status())) return value.status();
    const std::string missing = MissingRanks(store, prefix, size);
    if (wait_until < deadline) {
      if (!missing.empty()) late.report(missing);
      wait_until = deadline;
      continue;
    }
    return absl::DeadlineExceededError(absl::StrCat("missing ranks: ", missing.empty() ? "none any more" : missing));
  }
  return values;
}

absl::StatusOr<std::vector<std::string>> ExchangeBlobs(Store& store, absl::string_view name, Rank rank, int size,
                                                       absl::string_view blob, absl::Time deadline) {
  if (absl::Status status = CheckRank(name, rank, size); !status.ok()) return status;
  const std::string prefix = absl::StrCat("exchange/", name, "/");
  const std::string what = absl::StrCat("exchange '", name, "' of ", size, " ranks");
  if (absl::Status status = store.Set(absl::StrCat(prefix, rank), blob); !status.ok()) return status;
  absl::StatusOr<std::vector<std::string>> blobs =
      GetFromAll(store, prefix, size, deadline, rank == 0 ? LateRanksOnStderr(what, deadline) : LateRanksReport());
  if (absl::IsDeadlineExceeded(blobs.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " at ", absl::FormatTime(deadline), ": ", blobs.status().message()));
  }
  if (!blobs.ok()) return blobs.status();

  // The last to have read everything says so; rank 0, which may serve the store, leaves after it, and cleans up.
  const std::string readers = absl::StrCat(prefix, "readers"), done = absl::StrCat(prefix, "done");
  absl::StatusOr<std::int64_t> read = store.Add(readers, 1);
  if (!read.ok()) return read.status();
  if (*read == size) {
    if (absl::Status status = store.Set(done, ""); !status.ok()) return status;
  }
  if (rank != 0) return blobs;
  if (absl::Status status = store.Get(done, deadline).status(); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("exchange '", name, "': not every rank has read it: ", status.message()));
  }
  std::vector<std::string> keys = {readers, done};
  for (Rank r = 0; r < size; ++r) keys.push_back(absl::StrCat(prefix, r));
  for (const std::string& key : keys) {
    if (absl::Status status = store.Delete(key); !status.ok()) return status;
  }
  return blobs;
}

absl::Status CheckAgreement(Store& store, absl::string_view name, Rank rank, int size,
                            const std::vector<std::pair<std::string, std::string>>& fields, absl::Time deadline) {
  absl::StatusOr<std::vector<std::string>> blobs =
      ExchangeBlobs(store, absl::StrCat("agreement/", name), rank, size, Pack(fields), deadline);
  if (!blobs.ok()) return blobs.status();
  std::vector<std::string> differences;
  Fields of_rank_0;
  for (Rank r = 0; r < size; ++r) {
    Fields of_rank;
    if (!Unpack((*blobs)[static_cast<std::size_t>(r)], of_rank)) {
      return absl::DataLossError(absl::StrCat("agreement '", name, "': rank ", r, " sent no list of fields"));
    }
    if (r == 0) {
      of_rank_0 = of_rank;
    } else {
      Compare(r, of_rank, of_rank_0, differences);
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(List(differences, "; "));
}

}  // namespace tutti
