#include "transports/nccl/bounded.h"

#include <thread>
#include <utility>

namespace tutti::nccl {

std::shared_ptr<CallApart> CallApart::Start(std::function<void()> function) {
  auto call = std::make_shared<CallApart>();
  std::thread([call, function = std::move(function)]() mutable {
    function();
    function = nullptr;  // what it holds is let go before the call counts as returned
    MutexLock lock(call->mutex_);
    call->has_returned_ = true;
    call->changed_.NotifyAll();
  }).detach();
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

bool ReturnsBy(std::int64_t end_ns, std::function<void()> function) {
  return CallApart::Start(std::move(function))->ReturnsBy(end_ns);
}

}  // namespace tutti::nccl
