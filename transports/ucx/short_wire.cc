#include "transports/ucx/short_wire.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/ucx/network_hint.h"
#include "transports/ucx/pieces.h"

namespace tutti::ucx {
namespace {

// The most messages that one call of the kernel is given.
constexpr std::size_t kMessagesAtOnce = 16;

constexpr auto kHeader = static_cast<std::int64_t>(sizeof(ShortHeader));

// Receives `bytes` bytes to `memory`, and what follows these to `rest`.
ssize_t ReceiveBehind(int socket, std::byte* memory, std::int64_t bytes, absl::Span<std::byte> rest) {
  std::array<iovec, 2> parts = {{{memory, static_cast<std::size_t>(bytes)}, {rest.data(), rest.size()}}};
  msghdr header = {};
  header.msg_iov = parts.data();
  header.msg_iovlen = parts.size();
  return recvmsg(socket, &header, MSG_DONTWAIT);
}

}  // namespace

ShortWire::ShortWire(Rank peer, UnsharedFd socket, WireNews& news)
    : peer_(peer), socket_(std::move(socket)), news_(news) {
  UpdateReady();
}

bool ShortWire::Send(std::uint64_t tag, const void* data, std::int64_t bytes,
                     absl::FunctionRef<std::uint32_t()> operation) {
  Outgoing message = {.header = {.tag = tag, .bytes = bytes}, .data = data, .operation = {}, .control = {}};
  const bool is_first = first_ == queue_.size();
  const std::int64_t written = is_first && writable_ ? Give({&message, 1}, 0) : 0;
  if (written == kHeader + bytes) return true;
  message.operation = operation();
  Queue(std::move(message));
  if (is_first) written_ = written;
  if (!is_first && writes()) Write();
  return false;
}

void ShortWire::Announce(std::uint64_t tag, std::int64_t bytes, std::uint32_t number) {
  Queue({.header = {.kind = ShortHeader::Kind::kAnnounced, .number = number, .tag = tag, .bytes = bytes},
         .data = nullptr,
         .operation = {},
         .control = {}});
}

void ShortWire::Tell(const Control& control) {
  if (!sends()) return;
  auto frame = std::make_unique<ControlFrame>(Encode(control));
  const void* const data = frame->data();
  Queue({.header = {.kind = ShortHeader::Kind::kControl, .bytes = sizeof(ControlFrame)},
         .data = data,
         .operation = {},
         .control = std::move(frame)});
  if (writes()) Write();
}

void ShortWire::Queue(Outgoing message) {
  // In the long run nothing allocates: what has been sent leaves the queue before the queue grows.
  if (first_ == queue_.size() || first_ > queue_.size() / 2) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  if (!message.operation) AddUnawaited(1);
  queue_.push_back(std::move(message));
  UpdateReady();
}

std::int64_t ShortWire::Give(absl::Span<const Outgoing> messages, std::int64_t written) {
  Pieces<2 * kMessagesAtOnce> pieces(written);
  for (const Outgoing& message : messages.first(std::min(messages.size(), kMessagesAtOnce))) {
    pieces.Add(&message.header, kHeader);
    pieces.Add(message.data, message.header.payload());
  }
  const ssize_t taken = pieces.Send(socket_.get());
  if (taken >= 0) {
    writable_ = taken == pieces.bytes();  // the kernel tells when it takes more
    return taken;
  }
  writable_ = errno == EINTR;
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    // The peer has closed its end, perhaps behind bytes that are still to be read: those tell what has become of it.
    closing_ = true;
    readable_ = true;
    error_ = errno;
  }
  return 0;
}

bool ShortWire::Write() {
  bool moved = false;
  while (writes()) {
    std::int64_t taken = Give(absl::MakeConstSpan(queue_).subspan(first_), written_);
    moved |= taken > 0;
    while (first_ < queue_.size()) {
      Outgoing& message = queue_[first_];
      const std::int64_t left = kHeader + message.header.payload() - written_;
      if (taken < left) break;
      taken -= left;
      written_ = 0;
      ++first_;
      if (message.operation) {
        news_.ended.push_back({false, *message.operation});
      } else {
        AddUnawaited(-1);
      }
      message.control.reset();
    }
    written_ += taken;
  }
  return moved;
}

void ShortWire::ForgetSends() {
  sends_ = false;
  queue_.clear();
  first_ = 0;
  AddUnawaited(-unawaited_);
}

void ShortWire::FinishSending() {
  ForgetSends();
  if (socket_.valid()) shutdown(socket_.get(), SHUT_WR);
}

void ShortWire::SetReady(bool readable, bool writable, bool closed) {
  readable_ |= (readable || closed) && !ended_;
  writable_ |= writable;
  closing_ |= closed;
  UpdateReady();
}

void ShortWire::UpdateReady() {
  if (is_listed_ || !(readable_ || writes())) return;
  is_listed_ = true;
  news_.short_ready.push_back(peer_);
}

bool ShortWire::Progress(absl::Span<std::byte> buffer, ShortReceiver& receiver) {
  is_listed_ = false;
  bool moved = Write();
  if (readable_ && !ended_) moved |= Read(buffer, receiver);
  UpdateReady();
  return moved;
}

bool ShortWire::Read(absl::Span<std::byte> buffer, ShortReceiver& receiver) {
  bool moved = false;
  for (std::int64_t budget = kReadAtOnce; readable_ && !ended_ && budget > 0;) {
    const bool in_payload = header_read_ == sizeof(header_) && memory_ != nullptr;
    const std::int64_t left = in_payload ? header_.payload() - received_ : 0;
    const ssize_t got = left == 0 ? recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)
                                  : ReceiveBehind(socket_.get(), memory_ + received_, left, buffer);
    if (got < 0) {
      readable_ = errno == EINTR;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) EndWith(BrokenBy(errno));
      return moved;
    }
    if (got == 0) {
      EndWith(error_ == 0 || error_ == EPIPE ? "it closed its connection" : BrokenBy(error_));
      return moved;
    }
    moved = true;
    budget -= got;
    if (got < left + static_cast<std::int64_t>(buffer.size())) readable_ = closing_;  // the kernel has no more
    const std::int64_t direct = std::min<std::int64_t>(got, left);
    received_ += direct;
    if (direct > 0) EndIfWhole(receiver);
    TakeIn(buffer.first(static_cast<std::size_t>(got - direct)), receiver);
  }
  return moved;
}

void ShortWire::TakeIn(absl::Span<const std::byte> bytes, ShortReceiver& receiver) {
  while (!bytes.empty() && !ended_) {
    if (header_read_ < sizeof(header_)) {
      const std::size_t part = std::min(bytes.size(), sizeof(header_) - header_read_);
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_read_, bytes.data(), part);
      bytes.remove_prefix(part);
      header_read_ += part;
      if (header_read_ < sizeof(header_)) return;
      if (!header_.is_valid()) return EndWith("it sent what is no frame");
      received_ = 0;
      memory_ = receiver.BeginFrame(peer_, header_);
    }
    const auto left = static_cast<std::size_t>(header_.payload() - received_);
    const std::size_t part = std::min(bytes.size(), left);
    if (memory_ != nullptr && part > 0) std::memcpy(memory_ + received_, bytes.data(), part);
    bytes.remove_prefix(part);
    received_ += static_cast<std::int64_t>(part);
    EndIfWhole(receiver);
  }
}

void ShortWire::EndIfWhole(ShortReceiver& receiver) {
  if (received_ < header_.payload()) return;
  header_read_ = 0;
  memory_ = nullptr;
  if (!receiver.EndFrame(peer_, header_)) EndWith("it sent what is no control message");
}

void ShortWire::EndWith(absl::string_view why) {
  if (ended_) return;
  ended_ = std::string(why);
  readable_ = false;
  news_.short_ended.push_back(peer_);
}

bool ShortWire::IsDelivered() const {
  int unacknowledged = 0;
  return ended_ || !socket_.valid() || ioctl(socket_.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
}

void ShortWire::Close() {
  EndWith("it is closed");
  ForgetSends();
  socket_ = UnsharedFd();
}

}  // namespace tutti::ucx
