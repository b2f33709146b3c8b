// The wire to one rank on another node: TCP connections of the UCX transport's own, which carry the payload of longer
// messages. The short wire (short_wire.h) announces such a message, under the message's own tag and in its place in the
// order of messages.
//
// A payload travels in frames, each behind a header, over whichever connection takes bytes. A sender does not wait to
// be asked: the payload goes straight from the sender's memory into that of a receive that is posted already, and what
// comes before its receive is posted is kept here, a window of bytes at most. What receives have matched is told to the
// sender ("matched") when the window is half full: the window opens again, and the rest of a matched message comes
// without a limit. So no message waits behind another whose receive is never posted.
#ifndef TUTTI_TRANSPORTS_UCX_WIRE_H_
#define TUTTI_TRANSPORTS_UCX_WIRE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "transports/ucx/wire_frame.h"
#include "transports/ucx/wire_news.h"
#include "tutti/dtype.h"

namespace tutti::ucx {

class Wire {
 public:
  // The window: the most bytes that one rank sends another before the receives of their messages are known to be
  // posted, in a world of `size` ranks, all of whom take the same.
  static std::int64_t WindowOf(int size) {
    return std::min(kMaxWindow, kEarlyMemory / kWindowsKept / std::max(1, size - 1));
  }
  static constexpr std::int64_t kMaxWindow = 8 << 20;
  // The most memory of a rank for what comes before its receive is posted, of all peers together.
  static constexpr std::int64_t kEarlyMemory = 128 << 20;

  // The wire to `peer`, which adds to `news`. The end of the connections shows `peer` that this process has died.
  Wire(Rank peer, std::vector<UnsharedFd> sockets, std::int64_t window, WireNews& news);
  ~Wire() { Close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Takes a message to be sent and returns its number, which the caller announces before the next Progress. `data` is
  // read until the end of the send is reported, or Close.
  std::uint32_t Send(const void* data, std::int64_t bytes, std::uint32_t operation);
  // Receives the message `number`, of `bytes` bytes, into `data`, which is written until the end of the receive is
  // reported, Drop, or Close. False where the wire is broken, unless the message has come before: nothing is written
  // then, and no end reported.
  bool Receive(std::uint32_t number, void* data, std::int64_t bytes, std::uint32_t operation);
  // The message `number` is not wanted: what comes of it is thrown away.
  void Discard(std::uint32_t number, std::int64_t bytes);
  // Discards the messages of those receives for which `ends` holds; their ends are not reported.
  void Drop(absl::FunctionRef<bool(std::uint32_t operation)> ends);

  // Forgets the messages that are to be sent, none of whose ends is reported: from now on nothing is written. What
  // comes is still received.
  void ForgetSends();

  // Moves bytes over the connections that are ready; true when any moved. Reads at most kReadAtOnce bytes, and writes
  // about as many. Joins WireNews::ready anew where there is more to move.
  bool Progress();
  // What epoll has told about a connection: that bytes have come, that it takes bytes, that the peer has closed it.
  void SetReady(std::size_t connection, bool readable, bool writable, bool closed);

  // Whether Progress may move bytes now.
  bool is_ready() const { return is_ready_; }
  // Whether messages are under way that the caller waits for.
  bool is_busy() const { return sends_left_ > 0 || receives_ > 0; }
  bool has_receives() const { return receives_ > 0; }
  // Messages that this rank has been given to send, and messages that have come whole, modulo 2^32.
  std::uint32_t messages_sent() const { return next_number_; }
  // Bytes that the kernel has taken, and bytes that have come from the peer.
  std::int64_t bytes_moved() const;
  std::uint32_t messages_received() const { return messages_received_; }
  // Whether messages can be sent.
  bool sends() const { return sends_ && !broken_; }

  // Why the wire broke; nullopt while it works. A broken wire moves nothing.
  const std::optional<std::string>& broken() const { return broken_; }
  bool is_closed() const { return sockets_.empty(); }
  // Closes the connections and forgets all messages, none of whose ends is reported; except messages that have come
  // whole and whose receives are not posted yet.
  void Close();
  // Forgets the messages that are to be sent, and tells the peer that nothing more will come.
  void FinishSending();
  // The peer has said that it sends nothing more, but for what is on its way. From now on the peer is told of no
  // matches: a peer that has closed its end would lose what it has sent, were it told anything.
  void HearGoodbye();
  // Whether the peer's machine has all that was sent, or the wire is broken.
  bool IsDelivered() const;

  absl::Span<const UnsharedFd> sockets() const { return sockets_; }

 private:
  // The memory for what comes early, in windows. Of the messages whose frames are kept, the sender has sent all but one
  // as a whole, because it sends them in turn until the window is shut; each is given memory for all of it, or for as
  // much as may come.
  static constexpr std::int64_t kWindowsKept = 2;
  static constexpr std::int64_t kReadAtOnce = 512 << 10;
  // The bytes of one message after which another one has its turn.
  static constexpr std::int64_t kTurn = 1 << 20;
  static constexpr std::size_t kStaged = 4096;
  static constexpr std::size_t kMaxTold = 256;  // messages in one frame

  // Memory for the beginning of a payload that came before its receive was posted.
  struct EarlyBuffer {
    std::unique_ptr<std::byte[]> memory;
    std::int64_t bytes = 0;
  };
  struct Outgoing {
    std::uint32_t number = 0;
    std::uint32_t operation = 0;
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
    std::int64_t framed = 0;   // bytes that frames have been made of
    std::int64_t written = 0;  // bytes that the kernel has taken
    bool matched = false;
  };
  struct Incoming {
    std::int64_t bytes = 0;   // 0 while not known
    std::int64_t begun = 0;   // bytes of the frames that have begun to arrive
    std::uint64_t seams = 0;  // SeamAt the ends of these frames, less SeamAt their beginnings
    std::int64_t received = 0;
    std::byte* data = nullptr;  // where the payload goes; nullptr: nowhere, or to `early` while not matched
    std::uint32_t operation = 0;
    bool matched = false;
    bool told = false;           // the peer has been told that the message is matched
    std::int64_t early_end = 0;  // where the frames that have begun to arrive end, while not matched
    EarlyBuffer early;           // the beginning of the payload, while not matched
  };
  using IncomingMap = absl::flat_hash_map<std::uint32_t, Incoming>;
  // A frame that is being written.
  struct OutFrame {
    FrameHeader header = {};
    Outgoing* message = nullptr;  // of a kPayload frame
  };
  // The most frames that one call of the kernel is given: what is between two frames of several is no end of a packet,
  // which a link at 10 Gb/s would notice.
  static constexpr std::size_t kFramesAtOnce = 4;
  // One connection: what is being written to it and read from it.
  struct Connection {
    bool readable = true;
    bool writable = true;
    bool closing = false;  // the peer has closed its side: what is left to read ends with the end of the stream
    bool closed = false;   // the end of the stream has been read
    std::array<OutFrame, kFramesAtOnce> out;   // the frames that are being written, the oldest first
    std::size_t frames = 0;                    // how many there are
    std::int64_t out_written = 0;              // bytes of the first that the kernel has taken, those of its header too
    std::array<std::uint32_t, kMaxTold> told;  // the payload of the one frame among them that is kMatched
    bool tells = false;                        // whether there is one
    FrameHeader in = {};                       // the frame whose payload is being read
    std::int64_t in_left = 0;
    int low_water = 1;                      // the fewest bytes of which the kernel tells
    std::array<std::byte, kStaged> staged;  // bytes that came behind a payload: headers, and the beginning of a payload
    std::size_t staged_begin = 0;
    std::size_t staged_end = 0;
  };

  bool Write(Connection& connection, int socket, std::int64_t* budget);
  bool Read(Connection& connection, int socket, std::int64_t* budget);
  // Sets of how many bytes the kernel tells, on a connection that has no more to read.
  void SetLowWater(Connection& connection, int socket);
  // Makes the next frame of `connection`; false when there is nothing that may be sent, or no room for more frames.
  bool NextFrame(Connection& connection);
  // Counts `bytes` bytes more that the kernel has taken, reports the messages that end, and drops whole frames.
  void Written(Connection& connection, std::int64_t bytes);
  // Takes the header at the front of what is staged, and with it the numbers of a kMatched frame; false where these
  // have not come yet, or where the peer has broken the rules.
  bool TakeHeader(Connection& connection);
  void TellIfDue();
  void HearMatched(std::uint32_t number);
  // Where the next bytes of the frame that `connection` reads belong; nullptr: nowhere.
  std::byte* PlaceOf(const Connection& connection);
  void Received(Connection& connection, std::int64_t bytes);
  // The message `number`, which the peer has announced; the end of incoming_ where the announcement breaks the rules.
  IncomingMap::iterator HearAnnouncement(std::uint32_t number, std::int64_t bytes);
  void EndIfReceived(IncomingMap::iterator incoming);
  void Match(Incoming& incoming, std::uint32_t number);
  // The memory that a message of `bytes` bytes needs before its receive is posted.
  std::int64_t EarlyRoom(std::int64_t bytes) const { return std::min(bytes, window_); }
  // Memory for EarlyRoom of a message, which early_room_ has in it already; and its return.
  EarlyBuffer TakeEarlyBuffer(std::int64_t room);
  void Keep(EarlyBuffer buffer);
  // Frees the oldest buffers that nobody uses until they have `most` bytes together.
  void FreeBuffersBeyond(std::int64_t most);
  // Forgets the message if it is over.
  void ForgetIfEnded(std::list<Outgoing>::iterator message);
  // The message whose frame is to be sent next; nullptr: none may be sent.
  Outgoing* NextMessage();
  // Counts the frame of `bytes` bytes that was made of `message`.
  void CountTurn(const Outgoing& message, std::int64_t bytes);
  // Whether frames may be written to the connection: not where the peer has closed its end.
  bool TakesFrames(const Connection& connection) const {
    return connection.writable && sends_ && !connection.closing && !connection.closed;
  }
  void Break(absl::string_view why);
  void UpdateReady();
  void OnPeerClosed(Connection& connection);
  // Changes sends_left_ or receives_, and with it WireNews::under_way.
  void Add(int* messages, int more) {
    *messages += more;
    news_.under_way += more;
  }

  const Rank peer_;
  const std::int64_t window_;
  std::vector<UnsharedFd> sockets_;
  std::vector<Connection> connections_;
  WireNews& news_;
  std::optional<std::string> broken_;
  bool is_ready_ = false;
  bool is_listed_ = false;  // in WireNews::ready
  bool sends_ = true;
  bool said_goodbye_ = false;  // the peer has
  std::size_t first_ = 0;      // the connection with which the next Progress begins

  std::list<Outgoing> to_offer_;   // not wholly framed, not known to be matched; the oldest first
  std::list<Outgoing> to_finish_;  // not wholly framed, matched; in the order of their turns
  std::uint32_t turn_of_ = 0;      // the message of which the last frame was made
  std::int64_t turn_ = 0;          // bytes framed of it in its turn
  std::int64_t yielded_ = 0;       // bytes that one list may send before the age of messages counts again
  bool yielded_to_finish_ = false;
  std::list<Outgoing> framed_;  // messages that are wholly framed, but not wholly written, or not matched
  std::list<Outgoing> free_outgoing_;
  absl::flat_hash_map<std::uint32_t, std::list<Outgoing>::iterator> outgoing_;  // all messages in the first three lists
  std::uint32_t next_number_ = 0;
  std::uint32_t messages_received_ = 0;
  std::int64_t bytes_moved_ = 0;        // bytes that the kernel has taken or given
  std::int64_t unmatched_ = 0;          // bytes framed of messages that are not known to be matched
  int sends_left_ = 0;                  // messages whose end has not been reported
  std::vector<std::uint32_t> matches_;  // numbers of matched messages of which the peer has not been told
  std::int64_t untold_ = 0;             // bytes received of these
  bool tells_ = false;                  // the peer is to be told now

  IncomingMap incoming_;
  std::int64_t early_ = 0;               // bytes received of messages that are not matched
  std::int64_t early_room_ = 0;          // the bytes of memory that these messages have, all together
  std::vector<EarlyBuffer> free_early_;  // the oldest first; of a window together at most
  std::int64_t free_early_bytes_ = 0;
  int receives_ = 0;              // receives whose end has not been reported
  std::vector<std::byte> trash_;  // where unwanted payload goes; empty until there is any
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRE_H_
