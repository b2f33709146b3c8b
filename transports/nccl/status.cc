#include "transports/nccl/status.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace tutti::nccl {

absl::Status StatusOf(const Library& nccl, Result result, Rank rank, absl::string_view what) {
  if (result == Result::kSuccess) return absl::OkStatus();
  std::string text = absl::StrCat("rank ", rank, ": ", what, ": NCCL ", VersionText(nccl.version), ": ",
                                  nccl.get_error_string(result));
  const char* const last = nccl.get_last_error(nullptr);
  if (last != nullptr && *last != '\0') absl::StrAppend(&text, " (its last warning: ", last, ")");
  switch (result) {
    case Result::kRemoteError:
    case Result::kSystemError:
      return absl::UnavailableError(text);
    case Result::kInvalidArgument:
      return absl::InvalidArgumentError(text);
    case Result::kInvalidUsage:
      return absl::FailedPreconditionError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status Late(Rank rank, absl::string_view what, std::int64_t start_ns) {
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank, " waited ", absl::FormatDuration(absl::Nanoseconds(MonotonicNanos() - start_ns)), " in ", what,
      " for the other ranks of its NCCL communicator: one has not come, or its network cannot be reached"));
}

absl::Status AwaitReady(const Library& nccl, Comm comm, Rank rank, absl::string_view what, std::int64_t end_ns) {
  const std::int64_t start_ns = MonotonicNanos();
  constexpr auto kLongestPause = std::chrono::microseconds(1000);
  for (auto pause = std::chrono::microseconds(20);; pause = std::min(2 * pause, kLongestPause)) {
    Result state = Result::kSuccess;
    const Result asked = nccl.comm_get_async_error(comm, &state);
    if (asked != Result::kSuccess) return StatusOf(nccl, asked, rank, what);
    if (state != Result::kInProgress) return StatusOf(nccl, state, rank, what);
    if (MonotonicNanos() >= end_ns) return Late(rank, what, start_ns);
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace tutti::nccl
