#include "transports/nccl/bounded.h"

#include <memory>
#include <thread>
#include <utility>

#include "base/mutex.h"

namespace tutti::nccl {
namespace {

struct Return {
  Mutex mutex;
  Condition changed;
  bool has_returned TUTTI_GUARDED_BY(mutex) = false;
};

}  // namespace

bool ReturnsBy(std::int64_t end_ns, std::function<void()> function) {
  const auto shared = std::make_shared<Return>();
  std::thread([shared, function = std::move(function)]() mutable {
    function();
    function = nullptr;  // what it holds is let go before the caller goes on
    MutexLock lock(shared->mutex);
    shared->has_returned = true;
    shared->changed.NotifyAll();
  }).detach();
  Return& returned = *shared;
  MutexLock lock(returned.mutex);
  return returned.changed.WaitUntil(returned.mutex, end_ns,
                                    [&]() TUTTI_REQUIRES(returned.mutex) { return returned.has_returned; });
}

}  // namespace tutti::nccl
