#include "tests/harness/fake_stream.h"

#include <algorithm>
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
  if (capture_ != nullptr) return capture_->Record(this, std::move(work));
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

void FakeStream::BeginCapture(std::shared_ptr<FakeCapture> capture) {
  MutexLock lock(mutex_);
  capture_ = std::move(capture);
}

void FakeStream::EndCapture() {
  MutexLock lock(mutex_);
  capture_ = nullptr;
}

std::shared_ptr<FakeCapture> FakeStream::capture() {
  MutexLock lock(mutex_);
  return capture_;
}

void FakeCapture::Record(const FakeStream* stream, std::function<void()> work) {
  MutexLock lock(mutex_);
  work_.push_back(std::move(work));
  ++branches_[stream].recorded;
}

std::int64_t FakeCapture::RecordedOn(const FakeStream* stream) {
  MutexLock lock(mutex_);
  return branches_[stream].recorded;
}

void FakeCapture::Join(const FakeStream* stream, std::int64_t entries) {
  MutexLock lock(mutex_);
  std::int64_t& joined = branches_[stream].joined;
  joined = std::max(joined, entries);
}

FakeGraph FakeCapture::End(bool* ok) {
  MutexLock lock(mutex_);
  *ok = std::all_of(branches_.begin(), branches_.end(), [this](const auto& each) {
    return each.first == origin_ || each.second.joined == each.second.recorded;
  });
  return work_;
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
