// The limits of every store, checked by each before it does anything.
#ifndef TUTTI_STORE_LIMITS_H_
#define TUTTI_STORE_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

absl::Status CheckKey(absl::string_view key);
absl::Status CheckKeyAndValue(absl::string_view key, absl::string_view value);

// The integer that Add leaves under `key`: `value` (absent: empty) + delta.
absl::StatusOr<std::int64_t> AddToValue(absl::string_view key, absl::string_view value, std::int64_t delta);

// What Get returns when its time is over.
absl::Status KeyNotSet(absl::string_view key);

}  // namespace tutti

#endif  // TUTTI_STORE_LIMITS_H_
