// The short wire to one rank on another node: one TCP connection of the UCX transport's own, which carries short
// messages whole, announcements of longer ones, whose payload goes over the wire (wire.h), and control messages. All
// arrive in the order in which they were sent, so that their receiver can match messages by tag, and knows when it has
// a goodbye that nothing is missing before it.
//
// A short message leaves within the call that sends it, where the kernel takes it, in one call of the kernel, and
// straight from the sender's memory but for the shortest ones (pieces.h); so does what waits before it. The receiver
// reads what has come into a buffer that all short wires of the rank share, and the rest of a message of which a part
// has come straight to its place.
#ifndef TUTTI_TRANSPORTS_UCX_SHORT_WIRE_H_
#define TUTTI_TRANSPORTS_UCX_SHORT_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "base/unique_fd.h"
#include "transports/ucx/control.h"
#include "transports/ucx/short_frame.h"
#include "transports/ucx/wire_news.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

// Takes what comes over the short wires of a rank, of each peer one frame after the other.
class ShortReceiver {
 public:
  virtual ~ShortReceiver() = default;
  // A frame of `peer` begins. Its payload is written to the memory that is returned, until EndFrame or
  // ShortWire::Unwanted; nullptr: the payload is thrown away.
  virtual std::byte* BeginFrame(Rank peer, const ShortHeader& header) = 0;
  // All of the frame has come; false when its payload breaks the rules.
  virtual bool EndFrame(Rank peer, const ShortHeader& header) = 0;
};

class ShortWire {
 public:
  // The short wire to `peer`, which adds to `news`.
  ShortWire(Rank peer, UnsharedFd socket, WireNews& news);
  ~ShortWire() { Close(); }
  ShortWire(const ShortWire&) = delete;
  ShortWire& operator=(const ShortWire&) = delete;

  // Sends a message of at most kMaxShort bytes; true when the kernel has taken all of it. Otherwise the number of the
  // caller's operation is asked for, and `data` is read until the end of that operation is reported, ForgetSends, or
  // Close. Only where sends().
  bool Send(std::uint64_t tag, const void* data, std::int64_t bytes, absl::FunctionRef<std::uint32_t()> operation);
  // Announces the message `number` of the wire, of `bytes` bytes, with the next Send or Progress. Only where sends().
  void Announce(std::uint64_t tag, std::int64_t bytes, std::uint32_t number);
  // Sends a control message, at once or under Progress. Lost where sends() is false.
  void Tell(const Control& control);

  // Forgets what is to be sent, and sends nothing any more; the ends of messages are not reported.
  void ForgetSends();
  // Forgets what is to be sent, and tells the peer that nothing more will come.
  void FinishSending();
  // Throws the rest of the payload away that is being received.
  void Unwanted() { memory_ = nullptr; }

  // Moves bytes if the connection is ready; true when any moved. Reads, by way of `buffer`, until kReadAtOnce bytes
  // have come or more.
  bool Progress(absl::Span<std::byte> buffer, ShortReceiver& receiver);
  // Takes in an event of epoll: that bytes have come, that the connection takes bytes, that the peer has closed it.
  void SetReady(bool readable, bool writable, bool closed);

  // Whether a part of the payload of a message has come, and not all.
  bool is_in_message() const {
    return header_read_ == sizeof(header_) && header_.kind == ShortHeader::Kind::kWhole && received_ < header_.bytes;
  }
  // Whether messages can be sent.
  bool sends() const { return sends_ && !ended_; }
  // Why nothing more comes; nullopt while the connection works.
  const std::optional<std::string>& ended() const { return ended_; }
  // Whether the peer's machine has all that was sent, or the connection has ended.
  bool IsDelivered() const;
  void Close();

 private:
  static constexpr std::int64_t kReadAtOnce = 64 << 10;

  struct Outgoing {
    ShortHeader header;
    const void* data = nullptr;
    std::optional<std::uint32_t> operation;  // of a short message that did not leave at once
    std::unique_ptr<ControlFrame> control;   // what `data` points to, if a control message
  };

  void Queue(Outgoing message);
  // Gives the kernel `messages`, of whose first `written` bytes it has taken already; returns how many it takes.
  std::int64_t Give(absl::Span<const Outgoing> messages, std::int64_t written);
  // Gives the kernel what waits, and reports the ends; true when it took any.
  bool Write();
  bool Read(absl::Span<std::byte> buffer, ShortReceiver& receiver);
  // Takes bytes in that have been read into a buffer.
  void TakeIn(absl::Span<const std::byte> bytes, ShortReceiver& receiver);
  void EndIfWhole(ShortReceiver& receiver);
  void EndWith(absl::string_view why);
  void UpdateReady();
  void AddUnawaited(int more) {
    unawaited_ += more;
    news_.unawaited += more;
  }
  bool writes() const { return writable_ && first_ < queue_.size() && sends(); }

  const Rank peer_;
  UnsharedFd socket_;
  WireNews& news_;
  std::optional<std::string> ended_;
  bool sends_ = true;
  bool readable_ = true;
  bool writable_ = true;
  bool closing_ = false;    // the peer has closed its side: what is left to read ends with the end of the stream
  int error_ = 0;           // why the kernel took nothing any more
  bool is_listed_ = false;  // in WireNews::short_ready

  std::vector<Outgoing> queue_;  // what the kernel has not taken begins at first_
  std::size_t first_ = 0;
  std::int64_t written_ = 0;  // bytes of queue_[first_] that the kernel has taken
  int unawaited_ = 0;         // frames in the queue without an operation, as in WireNews::unawaited

  ShortHeader header_;           // of the frame that is being read
  std::size_t header_read_ = 0;  // bytes of it
  std::byte* memory_ = nullptr;  // of its payload
  std::int64_t received_ = 0;    // bytes of its payload
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_SHORT_WIRE_H_
