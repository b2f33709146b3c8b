// The errors of the inproc transport, worded as a user reads them.
#ifndef TUTTI_TRANSPORTS_INPROC_STATUS_H_
#define TUTTI_TRANSPORTS_INPROC_STATUS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti::inproc {

absl::Status WrongLength(Rank source, std::uint64_t tag, std::int64_t received, std::int64_t expected);
absl::Status TagInUse(absl::string_view operation, Rank peer, std::uint64_t tag);
absl::Status HasShutDown(Rank rank);
// The cause with which `teller` aborted, as its peers report it.
absl::Status ToldBy(Rank teller, const absl::Status& cause);

}  // namespace tutti::inproc

#endif  // TUTTI_TRANSPORTS_INPROC_STATUS_H_
