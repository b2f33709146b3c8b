#include "tests/harness/fake_stream.h"

#include <thread>
#include <utility>

namespace tutti {

std::shared_ptr<FakeStream> FakeStream::Make(int device) {
  std::shared_ptr<FakeStream> stream(new FakeStream(device));
  std::thread([stream] { stream->Run(); }).detach();
  return stream;
}

void FakeStream::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    changed_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return closed_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    mutex_.Unlock();
    work();
    work = nullptr;  // what the work held is let go before the work counts as performed
    mutex_.Lock();
    ++performed_;
    changed_.NotifyAll();
  }
}

void FakeStream::Push(std::function<void()> work) {
  MutexLock lock(mutex_);
  if (captures_) {
    captured_.push_back(std::move(work));
    return;
  }
  queue_.push_back(std::move(work));
  ++pushed_;
  changed_.NotifyAll();
}

bool FakeStream::idle() {
  MutexLock lock(mutex_);
  return performed_ == pushed_;
}

void FakeStream::Drain() {
  MutexLock lock(mutex_);
  const std::int64_t pushed = pushed_;
  changed_.Wait(mutex_, [&]() TUTTI_REQUIRES(mutex_) { return performed_ >= pushed; });
}

void FakeStream::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

void FakeStream::BeginCapture() {
  MutexLock lock(mutex_);
  captures_ = true;
}

FakeGraph FakeStream::EndCapture() {
  MutexLock lock(mutex_);
  captures_ = false;
  return std::exchange(captured_, {});
}

bool FakeStream::captures() {
  MutexLock lock(mutex_);
  return captures_;
}

void FakeRecord::Reach() {
  MutexLock lock(mutex_);
  reached_ = true;
  changed_.NotifyAll();
}

bool FakeRecord::reached() {
  MutexLock lock(mutex_);
  return reached_;
}

void FakeRecord::Await() {
  MutexLock lock(mutex_);
  changed_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return reached_; });
}

}  // namespace tutti
