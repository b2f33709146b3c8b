// Errors of Tutti as users of torch expect them: exceptions, derived from c10::Error.
#ifndef TUTTI_TORCH_ERRORS_H_
#define TUTTI_TORCH_ERRORS_H_

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tutti::nn {

// c10::ValueError for a wrong argument, c10::NotImplementedError for what cannot be done, c10::DistBackendError for
// everything that went wrong between the ranks.
inline void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  TORCH_CHECK_WITH(ValueError, !absl::IsInvalidArgument(status), "tutti: ", message);
  TORCH_CHECK_WITH(NotImplementedError, !absl::IsUnimplemented(status), "tutti: ", message);
  TORCH_CHECK_WITH(DistBackendError, false, "tutti: ", status.ToString());
}

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_ERRORS_H_
