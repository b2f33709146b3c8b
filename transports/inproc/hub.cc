#include "transports/inproc/hub.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"

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
  const MutexLock lock(mutex_);
  if (closed_) return false;
  events_.push_back({.kind = Event::Kind::kArrived, .message = message});
  news_.NotifyOne();
  return true;
}

void Port::ReportEnd(Message* message, absl::Status status) {
  const MutexLock lock(mutex_);
  events_.push_back({.kind = Event::Kind::kEnded, .message = message, .status = std::move(status)});
  news_.NotifyOne();
}

void Port::Report(const Event& event) {
  const MutexLock lock(mutex_);
  events_.push_back(event);
  news_.NotifyOne();
}

void Port::Take(std::vector<Event>* events) {
  const MutexLock lock(mutex_);
  events_.swap(*events);
}

void Port::Sleep(absl::Time until) {
  const MutexLock lock(mutex_);
  news_.WaitUntil(mutex_, NanosAt(until), [this]() TUTTI_REQUIRES(mutex_) { return woken_ || !events_.empty(); });
  woken_ = false;
}

void Port::AwaitNews() {
  const MutexLock lock(mutex_);
  news_.Wait(mutex_, [this]() TUTTI_REQUIRES(mutex_) { return !events_.empty(); });
}

void Port::Wake() {
  const MutexLock lock(mutex_);
  woken_ = true;
  news_.NotifyOne();
}

void Port::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace inproc

std::string InprocHub::AddressOf(std::size_t index) const {
  return absl::StrCat("inproc:", absl::Hex(reinterpret_cast<std::uintptr_t>(this)), ":", index);
}

absl::StatusOr<InprocHub::Registration> InprocHub::Register(Mapping region) {
  const MutexLock lock(mutex_);
  if (static_cast<int>(ports_.size()) == size_) {
    return absl::FailedPreconditionError(absl::StrCat("the in-process hub is for ", size_, " ranks, and ", size_,
                                                      " ranks have a transport of the hub already"));
  }
  ports_.push_back(std::make_unique<inproc::Port>(std::move(region)));
  return Registration{ports_.back().get(), AddressOf(ports_.size() - 1)};
}

absl::StatusOr<inproc::Port*> InprocHub::Find(const std::string& address) const {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    if (address == AddressOf(i)) return ports_[i].get();
  }
  return absl::NotFoundError(absl::StrCat("address '", absl::CHexEscape(address), "' is not one of the ", ports_.size(),
                                          " addresses of the in-process hub"));
}

void InprocHub::ReportToOthers(const inproc::Port* own, const inproc::Event& event) const {
  const MutexLock lock(mutex_);
  for (const std::unique_ptr<inproc::Port>& port : ports_) {
    if (port.get() != own) port->Report(event);
  }
}

std::shared_ptr<InprocHub> MakeInprocHub(int size, int ranks_per_node) {
  return std::make_shared<InprocHub>(size, ranks_per_node);
}

}  // namespace tutti
