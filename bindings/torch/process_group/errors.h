// Errors of Tutti as users of torch.distributed expect them.
#ifndef TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_
#define TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "tutti/torch/errors.h"

namespace tutti::dist {

// The exception for a call of the process group that `group` describes; null for an OK status.
inline std::exception_ptr ExceptionOf(const absl::Status& status, const std::string& group) {
  if (status.ok()) return nullptr;
  // Programs that use torch look for the word timeout in the text of an error.
  const char* const timeout = absl::IsDeadlineExceeded(status) ? "the timeout has ended the call: " : "";
  try {
    nn::ThrowIfError(absl::Status(status.code(), absl::StrCat(timeout, status.message(), group)));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_
