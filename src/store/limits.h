// The limits of every store, which each store checks before anything else.
#ifndef TUTTI_STORE_LIMITS_H_
#define TUTTI_STORE_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

absl::Status CheckKey(absl::string_view key);
absl::Status CheckKeyAndValue(absl::string_view key, absl::string_view value);

// The integer that Add leaves under `key`: `value` (empty when there is none) + delta.
absl::StatusOr<std::int64_t> AddToValue(absl::string_view key, absl::string_view value, std::int64_t delta);

// The errors of Get when its deadline has passed (DeadlineExceeded), and of Look when `key` has no value (NotFound).
absl::Status KeyNotSet(absl::string_view key);
absl::Status NoSuchKey(absl::string_view key);

}  // namespace tutti

#endif  // TUTTI_STORE_LIMITS_H_
