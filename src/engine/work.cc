#include "tutti/work.h"

#include "base/clock.h"
#include "engine/call.h"

namespace tutti {

Work::~Work() {
  if (call_ != nullptr) call_->Release();
}

absl::Status Work::StatusWithoutCall() const {
  if (!moved_from_) return status_;
  return absl::FailedPreconditionError("this Work was moved from: wait for the one that it was moved to");
}

bool Work::done() const { return call_ == nullptr || call_->done(run_); }

absl::Status Work::Wait() { return call_ == nullptr ? StatusWithoutCall() : call_->Wait(run_, false, kNeverNanos); }

absl::Status Work::Wait(absl::Time deadline) {
  return call_ == nullptr ? StatusWithoutCall() : call_->Wait(run_, false, NanosAt(deadline));
}

absl::Status Work::WaitForOutput() {
  return call_ == nullptr ? StatusWithoutCall() : call_->Wait(run_, true, kNeverNanos);
}

absl::Status Work::WaitOnStream(void* stream) {
  return call_ == nullptr ? StatusWithoutCall() : call_->WaitOnStream(run_, static_cast<CUstream_st*>(stream));
}

std::int64_t Work::wire_bytes() const { return call_ != nullptr ? call_->program().wire_bytes : 0; }

Rank Work::source() const { return call_ != nullptr && done() ? call_->source() : kAnySource; }

std::int64_t Work::end_nanos() const { return call_ != nullptr && done() ? call_->end_ns() : 0; }

void Work::OnDone(std::function<void(const absl::Status&)> callback) {
  if (callback == nullptr) return;
  if (call_ == nullptr) return Call::Tell(callback, StatusWithoutCall());
  call_->OnDone(run_, std::move(callback));
}

void Work::AwaitElsewhere() {
  if (call_ != nullptr) call_->AwaitElsewhere(run_);
}

}  // namespace tutti
