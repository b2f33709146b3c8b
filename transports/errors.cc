#include "transports/errors.h"

#include "absl/strings/str_cat.h"

namespace tutti {

absl::Status WrongLength(Rank source, std::int64_t received, std::int64_t expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("the message from rank ", source, " holds ", received, " bytes; the receive expects ", expected));
}

absl::Status Died(Rank rank, absl::string_view evidence) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " died: ", evidence));
}

absl::Status HasShutDown(Rank rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " has shut its transport down"));
}

absl::Status DestroyedWithoutShutdown(Rank rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " destroyed its transport without a Shutdown"));
}

absl::Status HasBeenDiscarded(Rank source, std::uint32_t group) {
  return absl::CancelledError(absl::StrCat("group ", group, " has been given up: its message from ",
                                           source == kAnySource ? "any rank" : absl::StrCat("rank ", source),
                                           " is no longer received"));
}

}  // namespace tutti
