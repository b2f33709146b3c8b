#include "transports/ucx/status.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tutti::ucx {

absl::Status WrongLength(Rank source, std::uint64_t tag, std::size_t received, std::int64_t expected) {
  return absl::InvalidArgumentError(absl::StrCat("message from rank ", source, " with tag ", tag, " holds ", received,
                                                 " bytes; the receive expects ", expected));
}

absl::Status HasShutDown(Rank rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " has shut its transport down"));
}

absl::Status Died(Rank rank, absl::string_view evidence) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " died: ", evidence));
}

absl::Status ToldBy(Rank teller, const absl::Status& cause) {
  // A cause that is passed on keeps the name of the rank that told it first.
  if (absl::StrContains(cause.message(), "(told by rank ")) return cause;
  return absl::Status(cause.code(), absl::StrCat(cause.message(), " (told by rank ", teller, ")"));
}

absl::Status SetupFailed(const Library& ucp, absl::string_view call, ucs_status_t status) {
  return absl::InternalError(absl::StrCat("UCX: ", call, ": ", ucp.ucs_status_string(status)));
}

}  // namespace tutti::ucx
