#include "transports/inproc/hub.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tutti {
namespace inproc {

Port::Port(Mapping region) : region_(std::move(region)) {
  free_messages_.reserve(kRoom);
  events_.reserve(kRoom);
  for (std::size_t i = 0; i < kRoom; ++i) {
    Message& message = messages_.emplace_back();
    message.sender = this;
    free_messages_.push_back(&message);
  }
}

Message* Port::NewMessage() {
  if (free_messages_.empty()) {
    Message& message = messages_.emplace_back();
    message.sender = this;
    return &message;
  }
  Message* message = free_messages_.back();
  free_messages_.pop_back();
  return message;
}

void Port::Free(Message* message) {
  message->state = Message::State::kFree;
  free_messages_.push_back(message);
}

bool Port::Deliver(Message* message) {
  const std::lock_guard lock(mutex_);
  if (closed_) return false;
  events_.push_back({Event::Kind::kArrived, message, absl::OkStatus()});
  news_.notify_one();
  return true;
}

void Port::ReportEnd(Message* message, absl::Status status) {
  const std::lock_guard lock(mutex_);
  events_.push_back({Event::Kind::kEnded, message, std::move(status)});
  news_.notify_one();
}

void Port::Take(std::vector<Event>* events) {
  const std::lock_guard lock(mutex_);
  events_.swap(*events);
}

void Port::Sleep(absl::Time until) {
  // Returning early is allowed; the bound keeps far deadlines from overflowing the clock.
  const absl::Duration wait = std::min(until - absl::Now(), absl::Hours(1));
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, absl::ToChronoNanoseconds(wait), [this] { return woken_ || !events_.empty(); });
  woken_ = false;
}

void Port::AwaitNews() {
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return !events_.empty(); });
}

void Port::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  news_.notify_one();
}

void Port::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void Port::Tell(const absl::Status& cause) {
  const std::lock_guard lock(mutex_);
  if (told_.ok()) told_ = cause;
  woken_ = true;
  news_.notify_one();
}

absl::Status Port::told() const {
  const std::lock_guard lock(mutex_);
  return told_;
}

}  // namespace inproc

std::string InprocHub::AddressOf(std::size_t index) const {
  return absl::StrCat("inproc:", absl::Hex(reinterpret_cast<std::uintptr_t>(this)), ":", index);
}

absl::StatusOr<InprocHub::Registration> InprocHub::Register(Mapping region) {
  const std::lock_guard lock(mutex_);
  if (static_cast<int>(ports_.size()) == size_) {
    return absl::FailedPreconditionError(absl::StrCat("the hub is for ", size_, " ranks, and all are taken"));
  }
  ports_.push_back(std::make_unique<inproc::Port>(std::move(region)));
  return Registration{ports_.back().get(), AddressOf(ports_.size() - 1)};
}

absl::StatusOr<inproc::Port*> InprocHub::Find(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (address == AddressOf(i)) return ports_[i].get();
  }
  return absl::NotFoundError("its address is not from this hub");
}

std::shared_ptr<InprocHub> MakeInprocHub(int size) { return std::make_shared<InprocHub>(size); }

}  // namespace tutti
