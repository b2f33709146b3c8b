#include "transports/nccl/bounded.h"

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti::nccl {

absl::StatusOr<std::shared_ptr<CallApart>> CallApart::Start(std::function<void()> function) {
  auto call = std::make_shared<CallApart>();
  try {
    std::thread([call, function = std::move(function)]() mutable {
      function();
      function = nullptr;  // what it holds is let go before the call counts as returned
      MutexLock lock(call->mutex_);
      call->has_returned_ = true;
      call->changed_.NotifyAll();
    }).detach();
  } catch (const std::system_error& no_thread) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start a thread for a call of NCCL: ", no_thread.what(), "; raise the limit (ulimit -u)"));
  }
  return call;
}

bool CallApart::has_returned() {
  MutexLock lock(mutex_);
  return has_returned_;
}

bool CallApart::ReturnsBy(std::int64_t end_ns) {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, end_ns, [this]() TUTTI_REQUIRES(mutex_) { return has_returned_; });
}

absl::StatusOr<bool> ReturnsBy(std::int64_t end_ns, std::function<void()> function) {
  const absl::StatusOr<std::shared_ptr<CallApart>> call = CallApart::Start(std::move(function));
  if (!call.ok()) return call.status();
  return (*call)->ReturnsBy(end_ns);
}

}  // namespace tutti::nccl
