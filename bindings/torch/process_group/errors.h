// Errors of Tutti as users of torch.distributed expect them.
#ifndef TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_
#define TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "tutti/torch/errors.h"

namespace tutti::dist {

// The exception for a call of the process group that `group` describes; null for an OK status. The text of an error of
// time begins with `timeout`, in which programs that use torch look for this word.
inline std::exception_ptr ExceptionOf(const absl::Status& status, const std::string& group,
                                      const char* timeout = "the timeout has ended the call: ") {
  if (status.ok()) return nullptr;
  const char* const begin = absl::IsDeadlineExceeded(status) ? timeout : "";
  try {
    nn::ThrowIfError(absl::Status(status.code(), absl::StrCat(begin, status.message(), group)));
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_ERRORS_H_
