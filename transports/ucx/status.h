// The errors of the UCX transport, worded as a user reads them.
#ifndef TUTTI_TRANSPORTS_UCX_STATUS_H_
#define TUTTI_TRANSPORTS_UCX_STATUS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "transports/ucx/library.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

absl::Status WrongLength(Rank source, std::uint64_t tag, std::size_t received, std::int64_t expected);
absl::Status HasShutDown(Rank rank);
absl::Status Died(Rank rank, absl::string_view evidence);
// The cause with which `teller` aborted, as its peers report it.
absl::Status ToldBy(Rank teller, const absl::Status& cause);
// A call of UCX that failed while this rank set itself up.
absl::Status SetupFailed(const Library& ucp, absl::string_view call, ucs_status_t status);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_STATUS_H_
