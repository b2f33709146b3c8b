#include "engine/callback_thread.h"

#include <deque>
#include <utility>

namespace tutti {

struct CallbackThread::Queue {
  Mutex mutex;
  Condition changed;
  std::deque<std::function<void()>> functions TUTTI_GUARDED_BY(mutex);
  bool ends TUTTI_GUARDED_BY(mutex) = false;
};

CallbackThread::CallbackThread() : queue_(std::make_shared<Queue>()) {}

CallbackThread::~CallbackThread() { Stop(); }

void CallbackThread::Stop() {
  {
    const MutexLock lock(queue_->mutex);
    queue_->ends = true;
  }
  queue_->changed.NotifyOne();
  const MutexLock lock(mutex_);
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CallbackThread::Start() {
  const MutexLock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([queue = queue_] { Main(queue); });
}

void CallbackThread::Run(std::function<void()> function) {
  {
    const MutexLock lock(queue_->mutex);
    queue_->functions.push_back(std::move(function));
  }
  queue_->changed.NotifyOne();
}

void CallbackThread::Main(const std::shared_ptr<Queue>& queue) {
  while (true) {
    std::function<void()> next;
    {
      const MutexLock lock(queue->mutex);
      queue->changed.Wait(queue->mutex,
                          [&]() TUTTI_REQUIRES(queue->mutex) { return queue->ends || !queue->functions.empty(); });
      if (queue->functions.empty()) return;
      next = std::move(queue->functions.front());
      queue->functions.pop_front();
    }
    next();
  }
}

}  // namespace tutti
