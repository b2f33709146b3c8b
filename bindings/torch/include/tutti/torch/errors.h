// Errors of Tutti as users of torch expect them: exceptions, derived from c10::Error.
#ifndef TUTTI_TORCH_ERRORS_H_
#define TUTTI_TORCH_ERRORS_H_

#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti::nn {

// An adapter for a language whose handlers of signals run while a thread waits (SetWaitWatch) sets this function: it
// throws what a handler on this thread has raised, if one has.
inline void (*throw_what_a_signal_raised)() = nullptr;

// Throws c10::ValueError for a wrong argument or a call at a wrong time, c10::NotImplementedError for what Tutti does
// not support, and c10::DistBackendError for everything that went wrong between the ranks.
inline void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  if (absl::IsCancelled(status) && throw_what_a_signal_raised != nullptr) throw_what_a_signal_raised();
  const std::string message(status.message());
  const bool is_misuse = absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status);
  TORCH_CHECK_WITH(ValueError, !is_misuse, "tutti: ", message);
  TORCH_CHECK_WITH(NotImplementedError, !absl::IsUnimplemented(status), "tutti: ", message);
  TORCH_CHECK_WITH(DistBackendError, false, "tutti: ", status.ToString());
}

// The place of an error: the rank that met it, and its step.
class ErrorPlace {
 public:
  ErrorPlace(const Communicator& communicator, const Synchronizer& synchronizer)
      : communicator_(communicator), synchronizer_(synchronizer) {}

  Rank rank() const { return communicator_.rank(); }
  // Throws like nn::ThrowIfError, and adds the rank and step at which the error was met.
  void ThrowIfError(const absl::Status& status) const {
    if (status.ok()) return;
    nn::ThrowIfError(absl::Status(status.code(), absl::StrCat(status.message(), " (met by rank ", rank(), " in step ",
                                                              synchronizer_.step(), ")")));
  }
  // Returns `state`, what SaveState of the synchronizer or its optimizer has returned; throws c10::DistBackendError
  // where that is empty, because nobody could load it.
  std::string SavedOrThrow(std::string state) const {
    if (!state.empty()) return state;
    absl::Status cause = communicator_.status();
    if (cause.ok()) cause = absl::InternalError("the last exchange failed, or its memory cannot be read");
    // The code of the cause may be that of a misuse, which was another call's. Cancelled is what a handler of a signal
    // has raised, here perhaps.
    const absl::StatusCode code = absl::IsCancelled(cause) ? cause.code() : absl::StatusCode::kAborted;
    ThrowIfError(absl::Status(code, absl::StrCat("the state cannot be saved: ", cause.ToString())));
    return state;
  }

 private:
  const Communicator& communicator_;
  const Synchronizer& synchronizer_;
};

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_ERRORS_H_
