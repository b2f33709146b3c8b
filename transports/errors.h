// The errors that several transports share, in one wording.
#ifndef TUTTI_TRANSPORTS_ERRORS_H_
#define TUTTI_TRANSPORTS_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

absl::Status WrongLength(Rank source, std::int64_t received, std::int64_t expected);
absl::Status Died(Rank rank, absl::string_view evidence);
absl::Status HasShutDown(Rank rank);
absl::Status DestroyedWithoutShutdown(Rank rank);
// The end of a receive from `source`, perhaps kAnySource, whose group has been given up.
absl::Status HasBeenDiscarded(Rank source, std::uint32_t group);

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_ERRORS_H_
