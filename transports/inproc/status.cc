#include "transports/inproc/status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tutti::inproc {

absl::Status WrongLength(Rank source, std::uint64_t tag, std::int64_t received, std::int64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat("message from rank ", source, " with tag ", tag, " holds ", received,
                                                 " bytes; the receive expects ", expected));
}

absl::Status TagInUse(absl::string_view operation, Rank peer, std::uint64_t tag) {
  return absl::InvalidArgumentError(
      absl::StrCat("tag ", tag, " is already in use by an unfinished ", operation, " rank ", peer));
}

absl::Status HasShutDown(Rank rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " has shut its transport down"));
}

absl::Status ToldBy(Rank teller, const absl::Status& cause) {
  // A cause that is passed on keeps the name of the rank that told it first.
  if (absl::StrContains(cause.message(), "(told by rank ")) return cause;
  return absl::Status(cause.code(), absl::StrCat(cause.message(), " (told by rank ", teller, ")"));
}

}  // namespace tutti::inproc
