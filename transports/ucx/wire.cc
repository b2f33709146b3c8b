#include "transports/ucx/wire.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transports/ucx/network_hint.h"
#include "transports/ucx/pieces.h"
#include "tutti/codecs/random.h"

namespace tutti::ucx {
namespace {

// The payload of one frame: long enough that a call of the kernel costs little beside it, short enough that what is
// queued behind a frame, on a slow link, need not wait long.
constexpr std::int64_t kFrameBytes = 128 << 10;
// The most bytes of a payload for which a rank sleeps on: a rank that wakes up for each packet does little else.
constexpr std::int64_t kLowWater = 64 << 10;
// The bytes of unwanted payload that one call of the kernel throws away.
constexpr std::int64_t kTrash = 64 << 10;

constexpr auto kHeader = static_cast<std::int64_t>(sizeof(FrameHeader));

// A number for every place in a message, by which frames that overlap are found without a list of frames: summed over
// the ends of all frames, less their beginnings, the numbers of places where one frame ends and another begins cancel
// out. What is left are the ends of the message, exactly where every byte is in one frame. The numbers are those of
// splitmix64, so that others do not cancel out by chance.
std::uint64_t SeamAt(std::int64_t offset) {
  return kernels::Mix((static_cast<std::uint64_t>(offset) + 1) * kernels::kGoldenRatio64);
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Wire::Wire(Rank peer, std::vector<UnsharedFd> sockets, std::int64_t window, WireNews& news)
    : peer_(peer), window_(window), sockets_(std::move(sockets)), connections_(sockets_.size()), news_(news) {
  UpdateReady();
}

std::uint32_t Wire::Send(const void* data, std::int64_t bytes, std::uint32_t operation) {
  if (free_outgoing_.empty()) free_outgoing_.emplace_back();
  to_offer_.splice(to_offer_.end(), free_outgoing_, free_outgoing_.begin());
  to_offer_.back() = {
      .number = next_number_++, .operation = operation, .data = static_cast<const std::byte*>(data), .bytes = bytes};
  outgoing_[to_offer_.back().number] = std::prev(to_offer_.end());
  Add(&sends_left_, 1);
  UpdateReady();
  return to_offer_.back().number;
}

Wire::IncomingMap::iterator Wire::HearAnnouncement(std::uint32_t number, std::int64_t bytes) {
  const auto found = incoming_.try_emplace(number).first;
  Incoming& incoming = found->second;
  if (incoming.matched || (incoming.bytes != 0 && incoming.bytes != bytes)) {
    Break(absl::StrCat("it announced message ", number, " twice or with another length"));
    return incoming_.end();
  }
  incoming.bytes = bytes;
  return found;
}

bool Wire::Receive(std::uint32_t number, void* data, std::int64_t bytes, std::uint32_t operation) {
  if (broken_) {
    const auto come = incoming_.find(number);
    if (come == incoming_.end() || come->second.received < bytes) return false;
  }
  const auto found = HearAnnouncement(number, bytes);
  if (found == incoming_.end()) return false;
  Incoming& incoming = found->second;
  Add(&receives_, 1);
  incoming.data = static_cast<std::byte*>(data);
  incoming.operation = operation;
  Match(incoming, number);
  EndIfReceived(found);
  return true;
}

void Wire::Discard(std::uint32_t number, std::int64_t bytes) {
  if (broken_) {
    incoming_.erase(number);
    return;
  }
  const auto found = HearAnnouncement(number, bytes);
  if (found == incoming_.end()) return;
  Match(found->second, number);
  EndIfReceived(found);
}

void Wire::Match(Incoming& incoming, std::uint32_t number) {
  incoming.matched = true;
  early_ -= incoming.received;
  if (incoming.data != nullptr && incoming.begun > 0) {
    std::memcpy(incoming.data, incoming.early.memory.get(), static_cast<std::size_t>(incoming.early_end));
  }
  if (incoming.early.bytes > 0) early_room_ -= EarlyRoom(incoming.bytes);
  Keep(std::exchange(incoming.early, {}));
  matches_.push_back(number);
  untold_ += incoming.received;
  TellIfDue();
  UpdateReady();
}

// A peer whose window is shut has sent window_ bytes of messages that it does not know to be matched. Once these have
// come, they are early, or of matches that the peer is about to hear of, or else they are counted here.
void Wire::TellIfDue() {
  if (early_ + untold_ >= window_ / 2 && !matches_.empty() && !said_goodbye_) tells_ = true;
}

// A buffer is used again for a message that needs as many bytes, so that all buffers together have no more than the
// messages that use them need, and what is free; most collectives send the same lengths again and again.
Wire::EarlyBuffer Wire::TakeEarlyBuffer(std::int64_t room) {
  const auto found = std::find_if(free_early_.begin(), free_early_.end(),
                                  [room](const EarlyBuffer& buffer) { return buffer.bytes == room; });
  if (found == free_early_.end()) {
    FreeBuffersBeyond(kWindowsKept * window_ - early_room_);
    return {std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(room)), room};
  }
  EarlyBuffer buffer = std::move(*found);
  free_early_.erase(found);
  free_early_bytes_ -= buffer.bytes;
  return buffer;
}

void Wire::Keep(EarlyBuffer buffer) {
  if (buffer.bytes == 0) return;
  free_early_bytes_ += buffer.bytes;
  free_early_.push_back(std::move(buffer));
  FreeBuffersBeyond(window_);
}

void Wire::FreeBuffersBeyond(std::int64_t most) {
  auto kept = free_early_.begin();
  for (; free_early_bytes_ > most; ++kept) free_early_bytes_ -= kept->bytes;
  free_early_.erase(free_early_.begin(), kept);
}

void Wire::EndIfReceived(IncomingMap::iterator incoming) {
  const Incoming& message = incoming->second;
  if (!message.matched || message.received < message.bytes) return;
  if (message.data != nullptr) {
    Add(&receives_, -1);
    news_.ended.push_back({true, message.operation});
  }
  incoming_.erase(incoming);
}

void Wire::Drop(absl::FunctionRef<bool(std::uint32_t operation)> ends) {
  for (auto& [number, incoming] : incoming_) {
    if (incoming.data == nullptr || !ends(incoming.operation)) continue;
    incoming.data = nullptr;
    Add(&receives_, -1);
  }
}

void Wire::ForgetSends() {
  sends_ = false;
  to_offer_.clear();
  to_finish_.clear();
  framed_.clear();
  outgoing_.clear();
  Add(&sends_left_, -sends_left_);
  UpdateReady();
}

void Wire::HearMatched(std::uint32_t number) {
  if (!sends_) return;
  const auto found = outgoing_.find(number);
  if (found == outgoing_.end() || found->second->matched) {
    return Break(absl::StrCat("it matched message ", number, " twice"));
  }
  const std::list<Outgoing>::iterator message = found->second;
  message->matched = true;
  unmatched_ -= message->framed;
  if (message->framed < message->bytes) to_finish_.splice(to_finish_.end(), to_offer_, message);
  ForgetIfEnded(message);
}

void Wire::ForgetIfEnded(std::list<Outgoing>::iterator message) {
  if (!message->matched || message->written < message->bytes) return;
  outgoing_.erase(message->number);
  free_outgoing_.splice(free_outgoing_.end(), framed_, message);
}

void Wire::SetReady(std::size_t connection, bool readable, bool writable, bool closed) {
  connections_[connection].readable |= (readable || closed) && !connections_[connection].closed;
  connections_[connection].writable |= writable;
  connections_[connection].closing |= closed;
  UpdateReady();
}

void Wire::UpdateReady() {
  const bool has_output = tells_ || !to_finish_.empty() || (!to_offer_.empty() && unmatched_ < window_);
  is_ready_ = !broken_ && std::any_of(connections_.begin(), connections_.end(), [&](const Connection& connection) {
    return connection.readable || (TakesFrames(connection) && (has_output || connection.frames > 0));
  });
  if (!is_ready_ || is_listed_) return;
  is_listed_ = true;
  news_.ready.push_back(peer_);
}

bool Wire::Progress() {
  is_listed_ = false;
  if (!is_ready_) return false;
  bool moved = false;
  std::int64_t reads = kReadAtOnce;
  std::int64_t writes = kReadAtOnce;
  // Connections take turns at being the first one, which alone may use up all that is moved at once.
  std::size_t i = first_ = first_ + 1 < connections_.size() ? first_ + 1 : 0;
  for (std::size_t turn = 0; turn < connections_.size() && !broken_; ++turn, ++i) {
    if (i == connections_.size()) i = 0;
    if (TakesFrames(connections_[i])) moved |= Write(connections_[i], sockets_[i].get(), &writes);
    if (!broken_ && connections_[i].readable) moved |= Read(connections_[i], sockets_[i].get(), &reads);
  }
  UpdateReady();
  return moved;
}

bool Wire::NextFrame(Connection& connection) {
  // Where there are several connections, a frame waits for the one that takes bytes.
  const std::size_t most = connections_.size() == 1 ? kFramesAtOnce : 1;
  if (connection.frames == most) return false;
  OutFrame& frame = connection.out[connection.frames];
  if (tells_ && !connection.tells) {
    const std::size_t count = std::min(matches_.size(), kMaxTold);
    std::copy_n(matches_.begin(), count, connection.told.begin());
    matches_.erase(matches_.begin(), matches_.begin() + static_cast<std::ptrdiff_t>(count));
    frame.header = {.kind = FrameHeader::Kind::kMatched,
                    .length = static_cast<std::int64_t>(count * sizeof(connection.told[0]))};
    for (std::size_t i = 0; i < count; ++i) {
      const auto found = incoming_.find(connection.told[i]);
      if (found != incoming_.end()) found->second.told = true;
    }
    if (matches_.empty()) {
      tells_ = false;
      untold_ = 0;
    }
    ++connection.frames;
    return connection.tells = true;
  }
  Outgoing* const message = NextMessage();
  if (message == nullptr) return false;
  const std::int64_t open = message->matched ? kFrameBytes : std::min(kFrameBytes, window_ - unmatched_);
  const std::int64_t length = std::min(open, message->bytes - message->framed);
  frame = {{.number = message->number, .bytes = message->bytes, .offset = message->framed, .length = length}, message};
  message->framed += length;
  if (!message->matched) unmatched_ += length;
  if (message->framed == message->bytes) {
    framed_.splice(framed_.end(), message->matched ? to_finish_ : to_offer_, outgoing_.find(message->number)->second);
  }
  CountTurn(*message, length);
  ++connection.frames;
  return true;
}

// Long messages take turns, so that a short one does not wait for gigabytes. Those that are not matched keep their
// order among each other: the peer has memory for one of which it has a part.
void Wire::CountTurn(const Outgoing& message, std::int64_t bytes) {
  if (yielded_to_finish_ == message.matched) yielded_ -= bytes;
  if (std::exchange(turn_of_, message.number) != message.number) turn_ = 0;
  turn_ += bytes;
  if (turn_ < kTurn || message.framed == message.bytes) return;
  turn_ = 0;
  yielded_ = kTurn;
  yielded_to_finish_ = !message.matched;
  if (message.matched) to_finish_.splice(to_finish_.end(), to_finish_, to_finish_.begin());
}

// Two messages may be next: one that is matched, which no window holds up, and one that is not, while the window is
// open. The older one is next, unless the list of the one has yielded to that of the other.
Wire::Outgoing* Wire::NextMessage() {
  Outgoing* const offer = to_offer_.empty() || unmatched_ >= window_ ? nullptr : &to_offer_.front();
  if (to_finish_.empty()) return offer;
  Outgoing* const finish = &to_finish_.front();
  if (yielded_ > 0 && offer != nullptr) return yielded_to_finish_ ? finish : offer;
  const bool is_older = offer != nullptr && offer->number - finish->number > UINT32_MAX / 2;  // numbers wrap around
  return is_older ? offer : finish;
}

bool Wire::Write(Connection& connection, int socket, std::int64_t* budget) {
  bool moved = false;
  while (*budget > 0) {
    while (NextFrame(connection)) {
    }
    if (connection.frames == 0) return moved;
    Pieces<2 * kFramesAtOnce> pieces(connection.out_written);
    for (const OutFrame& frame : absl::MakeConstSpan(connection.out).first(connection.frames)) {
      const bool is_payload = frame.header.kind == FrameHeader::Kind::kPayload;
      pieces.Add(&frame.header, kHeader);
      pieces.Add(
          is_payload ? static_cast<const void*>(frame.message->data + frame.header.offset) : connection.told.data(),
          frame.header.length);
    }
    const ssize_t written = pieces.Send(socket);
    if (written < 0) {
      connection.writable = errno == EINTR;
      if (errno == EPIPE) {  // the peer has closed its end, perhaps behind bytes that are still to be read
        connection.closing = true;
        connection.readable = !connection.closed;
      } else if (!WouldBlock(errno)) {
        Break(BrokenBy(errno));
      }
      return moved;
    }
    moved = true;
    *budget -= written;
    bytes_moved_ += written;
    Written(connection, written);
    if (written < pieces.bytes()) {
      connection.writable = false;  // the kernel took less than it was given: it tells when it takes more
      return moved;
    }
  }
  return moved;
}

void Wire::Written(Connection& connection, std::int64_t bytes) {
  std::size_t whole = 0;
  for (; whole < connection.frames; ++whole) {
    const auto& [header, message] = connection.out[whole];
    const std::int64_t now = std::min(bytes, kHeader + header.length - connection.out_written);
    const std::int64_t of_payload = std::max<std::int64_t>(0, connection.out_written - kHeader);
    connection.out_written += now;
    bytes -= now;
    const bool is_payload = header.kind == FrameHeader::Kind::kPayload;
    if (is_payload) message->written += std::max<std::int64_t>(0, connection.out_written - kHeader) - of_payload;
    if (connection.out_written < kHeader + header.length) break;
    connection.out_written = 0;
    if (!is_payload) {
      connection.tells = false;
    } else if (message->written == message->bytes) {
      Add(&sends_left_, -1);
      news_.ended.push_back({false, message->operation});
      ForgetIfEnded(outgoing_.find(message->number)->second);
    }
  }
  if (whole > 0) {
    std::copy(connection.out.begin() + whole, connection.out.begin() + connection.frames, connection.out.begin());
  }
  connection.frames -= whole;
}

std::byte* Wire::PlaceOf(const Connection& connection) {
  Incoming& message = incoming_.find(connection.in.number)->second;
  const std::int64_t offset = connection.in.offset + connection.in.length - connection.in_left;
  if (message.matched) return message.data == nullptr ? nullptr : message.data + offset;
  return message.early.memory.get() + offset;
}

void Wire::Received(Connection& connection, std::int64_t bytes) {
  connection.in_left -= bytes;
  const auto found = incoming_.find(connection.in.number);
  found->second.received += bytes;
  if (found->second.received == found->second.bytes) ++messages_received_;
  if (!found->second.matched) early_ += bytes;
  if (found->second.matched && !found->second.told) untold_ += bytes;
  TellIfDue();
  EndIfReceived(found);
}

bool Wire::TakeHeader(Connection& connection) {
  FrameHeader& frame = connection.in;
  const std::byte* const begin = connection.staged.data() + connection.staged_begin;
  std::memcpy(&frame, begin, sizeof(frame));
  if (frame.kind == FrameHeader::Kind::kMatched) {
    std::array<std::uint32_t, kMaxTold> numbers;
    if (frame.length <= 0 || frame.length > static_cast<std::int64_t>(sizeof(numbers)) ||
        frame.length % static_cast<std::int64_t>(sizeof(numbers[0])) != 0) {
      Break("it sent what is no frame");
      return false;
    }
    const std::size_t whole = sizeof(frame) + static_cast<std::size_t>(frame.length);
    if (connection.staged_end - connection.staged_begin < whole) return false;
    connection.staged_begin += whole;
    std::memcpy(numbers.data(), begin + sizeof(frame), static_cast<std::size_t>(frame.length));
    const auto count = static_cast<std::size_t>(frame.length) / sizeof(numbers[0]);
    for (std::size_t i = 0; i < count && !broken_; ++i) HearMatched(numbers[i]);
    return !broken_;
  }
  connection.staged_begin += sizeof(frame);
  const bool valid = frame.kind == FrameHeader::Kind::kPayload && frame.bytes > 0 && frame.length > 0 &&
                     frame.offset >= 0 && frame.offset <= frame.bytes - frame.length;
  if (!valid) {
    Break("it sent what is no frame");
    return false;
  }
  Incoming& message = incoming_[frame.number];
  if (message.bytes == 0) message.bytes = frame.bytes;
  const bool begins = !message.matched && message.early.bytes == 0;
  const std::int64_t room = begins ? early_room_ + EarlyRoom(frame.bytes) : early_room_;
  const std::int64_t end = frame.offset + frame.length;
  const bool fits =
      message.matched || (early_ + frame.length <= window_ && end <= window_ && room <= kWindowsKept * window_);
  if (message.bytes != frame.bytes || message.begun > message.bytes - frame.length || !fits) {
    Break("it sent more than it may");
    return false;
  }
  message.begun += frame.length;
  message.seams += SeamAt(end) - SeamAt(frame.offset);
  if (message.begun == message.bytes && message.seams != SeamAt(message.bytes) - SeamAt(0)) {
    Break(absl::StrCat("it sent parts of message ", frame.number, " that overlap"));
    return false;
  }
  if (!message.matched) {
    early_room_ = room;
    if (begins) message.early = TakeEarlyBuffer(EarlyRoom(message.bytes));
    message.early_end = std::max(message.early_end, end);
  }
  connection.in_left = frame.length;
  return true;
}

bool Wire::Read(Connection& connection, int socket, std::int64_t* budget) {
  bool moved = false;
  for (;;) {
    // All that is staged is used up first: no event of the socket would tell of it.
    const auto staged = static_cast<std::int64_t>(connection.staged_end - connection.staged_begin);
    if (connection.in_left == 0 && staged >= kHeader) {
      if (TakeHeader(connection)) {
        moved = true;
        continue;
      }
      if (broken_) return moved;
    }
    if (connection.in_left > 0 && staged > 0) {
      const std::int64_t bytes = std::min(staged, connection.in_left);
      std::byte* const place = PlaceOf(connection);
      if (place != nullptr) {
        std::memcpy(place, connection.staged.data() + connection.staged_begin, static_cast<std::size_t>(bytes));
      }
      connection.staged_begin += static_cast<std::size_t>(bytes);
      Received(connection, bytes);
      continue;
    }
    // Nothing is staged but, perhaps, the beginning of a header or of a kMatched frame.
    if (!connection.readable) SetLowWater(connection, socket);
    if (*budget <= 0 || !connection.readable) return moved;
    std::copy_n(connection.staged.begin() + static_cast<std::ptrdiff_t>(connection.staged_begin), staged,
                connection.staged.begin());
    connection.staged_begin = 0;
    connection.staged_end = static_cast<std::size_t>(staged);
    std::int64_t room = 0;
    std::array<iovec, 2> parts;
    std::size_t count = 0;
    if (connection.in_left > 0) {
      std::byte* const place = PlaceOf(connection);
      room = place != nullptr ? connection.in_left : std::min(connection.in_left, kTrash);
      if (place == nullptr) trash_.resize(kTrash);
      parts[count++] = {place != nullptr ? place : trash_.data(), static_cast<std::size_t>(room)};
    }
    // What is thrown away may end in the middle of a payload, behind which nothing may be staged.
    if (room == connection.in_left) {
      parts[count++] = {connection.staged.data() + staged, kStaged - static_cast<std::size_t>(staged)};
    }
    std::int64_t asked = 0;
    for (std::size_t i = 0; i < count; ++i) asked += static_cast<std::int64_t>(parts[i].iov_len);
    msghdr header = {};
    header.msg_iov = parts.data();
    header.msg_iovlen = count;
    const ssize_t got = recvmsg(socket, &header, MSG_DONTWAIT);
    if (got < 0 && WouldBlock(errno)) {
      connection.readable = errno == EINTR;
      if (!connection.readable) SetLowWater(connection, socket);
      return moved;
    }
    if (got < 0) {
      Break(BrokenBy(errno));
      return moved;
    }
    if (got == 0) {
      OnPeerClosed(connection);
      return moved;
    }
    moved = true;
    *budget -= got;
    bytes_moved_ += got;
    const std::int64_t of_payload = std::min<std::int64_t>(got, room);
    connection.staged_end += static_cast<std::size_t>(got - of_payload);
    if (of_payload > 0) Received(connection, of_payload);
    if (got < asked) connection.readable = connection.closing;  // the kernel has no more, and tells when it has
  }
}

// The kernel is asked for no more than is certain to come, which is the rest of a frame that has begun: behind the
// frame the peer may wait to hear from this rank. The kernel tells of the end of a connection all the same.
void Wire::SetLowWater(Connection& connection, int socket) {
  const bool in_payload = connection.in_left > 0 && !connection.closing;
  const auto wanted = static_cast<int>(in_payload ? std::min(connection.in_left, kLowWater) : 1);
  if (wanted == connection.low_water) return;
  connection.low_water = wanted;
  // Sockets that are not TCP may not know it, and tell of each byte.
  (void)setsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
}

std::int64_t Wire::bytes_moved() const {
  std::int64_t bytes = bytes_moved_;
  for (const UnsharedFd& socket : sockets_) {
    int unread = 0;
    if (ioctl(socket.get(), FIONREAD, &unread) == 0) bytes += unread;
  }
  return bytes;
}

void Wire::Break(absl::string_view why) {
  if (broken_) return;
  broken_ = std::string(why);
  is_ready_ = false;
  news_.broken.push_back(peer_);
}

// A peer that leaves in order closes its connections when all that it sent is on its way; what came over the others is
// still to be read.
void Wire::OnPeerClosed(Connection& connection) {
  connection.readable = false;
  connection.closed = true;
  const bool all = std::all_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.closed; });
  // A frame that was begun does not arrive any more. Of a peer that leaves, all that is left to read counts for more.
  const bool loses = sends_ && connection.frames > 0 && !said_goodbye_;
  if (all || loses || connection.in_left > 0 || connection.staged_end > connection.staged_begin) {
    Break("it closed its connection");
  }
}

void Wire::HearGoodbye() {
  said_goodbye_ = true;
  tells_ = false;
  UpdateReady();
}

void Wire::FinishSending() {
  ForgetSends();
  for (const UnsharedFd& socket : sockets_) shutdown(socket.get(), SHUT_WR);
}

bool Wire::IsDelivered() const {
  return broken_ || std::all_of(sockets_.begin(), sockets_.end(), [](const UnsharedFd& socket) {
           int unacknowledged = 0;
           return ioctl(socket.get(), SIOCOUTQ, &unacknowledged) != 0 || unacknowledged == 0;
         });
}

void Wire::Close() {
  Break("it is closed");
  sockets_.clear();
  connections_.clear();
  ForgetSends();
  matches_.clear();
  untold_ = 0;
  tells_ = false;
  absl::erase_if(incoming_,
                 [](const auto& entry) { return entry.second.matched || entry.second.received < entry.second.bytes; });
  Add(&receives_, -receives_);
}

}  // namespace tutti::ucx
