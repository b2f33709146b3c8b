// The UCX transport: messages over UCX within a node, over wires of its own between nodes, and between containers of a
// node that share no memory of UCX's (wired.cc), and regions of peers on the node by memory mapping. UCX's tag
// interface matches messages within a node; a longer message is only announced there, and its receiver reads the
// payload from its sender's region, or elsewhere from its sender's process (announced.cc). The node's sockets
// (node_link.h), the wires, and UCX's own errors tell which peers are alive; health.h decides which are lost.
#ifndef TUTTI_TRANSPORTS_UCX_TRANSPORT_H_
#define TUTTI_TRANSPORTS_UCX_TRANSPORT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "memory/shared_region.h"
#include "transports/discarded.h"
#include "transports/ended.h"
#include "transports/keyed_queues.h"
#include "transports/notes.h"
#include "transports/ucx/address.h"
#include "transports/ucx/control.h"
#include "transports/ucx/early_buffers.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/health.h"
#include "transports/ucx/node_link.h"
#include "transports/ucx/node_rendezvous.h"
#include "transports/ucx/wire_meeting.h"
#include "transports/ucx/wires.h"
#include "transports/ucx/worker.h"
#include "tutti/transport.h"

namespace tutti::ucx {

class UcxTransport final : public Transport, private ShortReceiver {
 public:
  UcxTransport(std::unique_ptr<Worker> worker, SharedRegion region, NodeRendezvous rendezvous, WireMeeting meeting,
               int connections, UniqueFd wake, std::string node)
      : ucp_(worker->ucp()),
        worker_(std::move(worker)),
        region_(std::move(region)),
        rendezvous_(std::move(rendezvous)),
        meeting_(std::move(meeting)),
        connections_(connections),
        wake_(std::move(wake)),
        node_(std::move(node)) {}
  ~UcxTransport() override;

  absl::string_view name() const override { return "ucx"; }
  MappedRegion region() const override { return {region_.mapping.base(), region_.mapping.bytes()}; }
  absl::StatusOr<std::string> Address() override;
  using Transport::Connect;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override;
  Endpoint& endpoint(Rank peer) override { return endpoints_[static_cast<std::size_t>(peer)]; }
  void RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  bool ShowsToPeers(const void* data, std::int64_t bytes) const override {
    return ProcessMemory::IsShown(data, static_cast<std::size_t>(bytes));
  }
  bool Progress() override;
  bool Drain() override;
  bool CallEnded() override;
  // Announcements and control messages that the kernel has no room for wait on their short wires, and control messages
  // to a rank of this node for its memory.
  bool HoldsSent() override { return wires_.holds_unawaited() || control_sends_ > 0; }
  void Sleep(absl::Time until) override;
  void Wake() override;
  absl::Span<const Loss> Check() override;
  void Disconnect(Rank peer, const absl::Status& cause) override;
  void Discard(std::uint32_t group) override;
  void Accept(std::uint32_t group) override;
  void Tell(Rank peer, std::uint32_t group, const absl::Status& cause) override;
  std::optional<Note> TakeNote() override { return notes_.Take(); }
  bool HasLeft(Rank peer) override;
  std::int64_t BytesMovedWith(Rank peer) const override {
    const Wire* const wire = wires_.To(peer);
    return wire == nullptr ? 0 : wire->bytes_moved();
  }
  bool IsReceivingFrom(Rank peer) const override;
  void ShowWaitsFor(const std::atomic<Rank>* waits_for) override { waits_for_ = waits_for; }
  void AskWaitsFor(Rank peer) override;
  std::optional<Rank> WaitsFor(Rank peer) override { return news_[static_cast<std::size_t>(peer)].waits_for; }
  bool HasEnded(Rank peer) override;
  absl::Status Seclude(std::byte* data, std::int64_t bytes) override;
  void Shutdown(const absl::Status& cause) override;

  // The functions that endpoints call.
  void PostSend(UcxEndpoint& to, std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion);
  void PostRecv(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion);
  // Whether a copy from the memory of `peer`, which ended with `copied`, is what the peer had there: a peer that has
  // ended, or has given this rank up, may have used the memory for something else.
  bool HasRead(Rank peer, const absl::Status& copied);

 private:
  static constexpr absl::Duration kShortestNap = absl::Microseconds(50);

  // Where the payload of an announced message is: at an offset of its sender's region, or at an address of its sender's
  // process.
  struct Payload {
    std::uint64_t place = 0;
    std::uint32_t in_region = 0;  // 1: an offset; 0: an address
  };
  struct Announcement {
    Payload payload = {};
    std::int64_t bytes = 0;
    std::uint32_t number = 0;  // the number of the sender's operation
  };
  // A Send or Recv that has not ended yet: that UCX or a wire has not ended, or whose payload is being read from
  // memory. Operations are pooled, so that in the long run nothing allocates.
  struct Operation {
    UcxTransport* transport = nullptr;
    Completion* completion = nullptr;  // nullptr: the operation is free, or its completion has been called already
    void* request = nullptr;
    Rank peer = 0;
    std::uint64_t tag = 0;
    void* data = nullptr;  // the buffer of a receive
    std::int64_t bytes = 0;
    bool receives = false;
    bool discarded = false;
    bool announced = false;  // a send within the node that ends when the peer has taken the message
    bool wired = false;      // the message goes over the wires, and UCX knows nothing of it
    bool sent = false;       // UCX has ended the send
    bool taken = false;      // the peer has taken the announced message
    std::uint32_t number = 0;
    // What a send announces. Also the buffer of a receive of fewer bytes than an announcement has, because an
    // announcement may come in place of the message.
    Announcement announcement = {};
  };
  // An announced message whose payload is being read from the memory of its sender. UCX has ended the receive.
  struct Read {
    Operation* operation;
    Payload payload;
    std::int64_t copied;
    std::uint32_t number;
  };
  // A message of a peer on another node that came before its receive was posted.
  struct Arrival {
    std::int64_t bytes = 0;
    EarlyMemory early;                    // the contents, unless the message is on the wire
    std::optional<std::uint32_t> number;  // of the message on the wire
  };
  // The frame that is coming over the short wire from a peer.
  struct Arriving {
    std::uint64_t tag = 0;
    std::optional<std::uint32_t> receive;  // the operation that receives it
    EarlyMemory early;                     // the contents, where no operation receives it; null: not wanted
  };
  // A receive from any source, or a receive of that tag that was posted later: see any_source.cc.
  struct QueuedRecv {
    Rank source = kAnySource;
    void* data = nullptr;
    std::int64_t bytes = 0;
    Completion* completion = nullptr;
  };
  // How a receive ended inside the call that posted it.
  struct EndedInline {
    bool ended = false;
    ucs_status_t status = UCS_OK;
    std::size_t bytes = 0;
    ucp_tag_t tag = 0;
  };
  // A message that failed because of its peer; the message ends with the cause of that peer's loss, once the peer
  // counts as lost.
  struct Held {
    Completion* completion;
    Rank peer;
    bool announced = false;  // the Send of an announced message
  };
  // A control message, and the receive, or nullptr, that ends with `result` when UCX has sent the message. Pooled, as
  // operations are: every announced message has one.
  struct ControlSend {
    UcxTransport* transport = nullptr;
    ControlFrame frame = {};
    Operation* receive = nullptr;
    absl::Status result;
  };
  struct PeerNews {
    bool hello = false;
    bool reads = false;  // the peer can read the memory of this rank's process
    bool settled = false;
    bool goodbye_seen = false;  // the peer has seen this rank's goodbye
    bool goodbye = false;       // the peer's goodbye has come behind its messages: over UCX, or the short wire
    std::uint32_t wired = 0;    // the messages that the peer has sent over its wire, as its goodbye says
    Arriving arriving;
    bool link_ended = false;        // the peer's socket on this node is closed
    bool left = false;              // HasLeft has returned true for the peer
    std::optional<Rank> waits_for;  // the peer's answer to the last question
  };

  Operation* NewOperation(Completion* completion, Rank peer, std::uint64_t tag, std::int64_t bytes, bool receives);
  void Release(Operation* operation);
  // Ends the completion of `operation`, and releases it.
  void Finish(Operation& operation, absl::Status status);
  // Gives UCX the receive `operation` by `post`, which gets the buffer and its length.
  void Receive(Operation* operation,
               absl::FunctionRef<ucs_status_ptr_t(void*, std::size_t, const ucp_request_param_t&)> post);
  void SendEnded(Operation* operation, ucs_status_t status);
  void RecvEnded(Operation* operation, const EndedInline& how);
  // Whether `peer`, which counts as lost, can hear so over the link of the node (if the peer lives): see announced.cc.
  bool HasHeardOfLoss(Rank peer) const;
  // Handles the failure of an operation; with `announced`, the operation is the Send of an announced message.
  void Failed(Completion* completion, Rank peer, ucs_status_t status, bool announced);
  // The error with which messages that failed because of `peer` end; OK while the error is not known.
  absl::Status VerdictOn(Rank peer) const;
  void EndHeld();

  // Where `peer` reads the message, `bytes` bytes that this rank sends from `data`, straight from this rank's memory;
  // nullopt: the peer does not.
  std::optional<Payload> PayloadReadBy(const UcxEndpoint& peer, const void* data, std::int64_t bytes) const;
  // Begins to read the message whose announcement the receive `operation` has got.
  void BeginRead(Operation* operation, std::size_t received);
  // Why `operation`, a Recv of a message that was announced with `bytes` bytes, cannot get its message; OK where it
  // can. `malformed` is what is wrong with the announcement itself.
  absl::Status ErrorOfAnnounced(const Operation& operation, std::int64_t bytes, const absl::Status& malformed) const;
  // Reads at most `most` bytes of announced messages; false when there was nothing to read.
  bool ReadAnnounced(std::int64_t most);
  // Copies the next `bytes` bytes of the payload.
  absl::Status CopyPayload(const Read& read, std::int64_t bytes);
  // Ends a read whose payload has been copied, or cannot be copied, as `copied` says.
  void EndRead(const Read& read, const absl::Status& copied);
  // Ends the reads whose operations `ends` chooses, unfinished.
  void EndReads(absl::FunctionRef<bool(const Operation&)> ends, absl::FunctionRef<absl::Status(const Operation&)> why);
  // Ends the sends which `ends` chooses, of those that wait until they are taken: by a peer of this node to which they
  // are announced, or by wires, which must be closed.
  void EndUntaken(absl::FunctionRef<bool(const Operation&)> ends, const absl::Status& why);
  // Tells the sender of message `number` that `receive` has taken the message, and then ends `receive` with `result`.
  void TellTaken(Operation* receive, std::uint32_t number, absl::Status result);
  void HearTaken(Rank from, std::uint32_t number);
  // Ends the announced send `operation`, or leaves its end to SendEnded.
  void Taken(Operation& operation);

  // Sends or receives over the wires between this rank and a rank on another node.
  void PostWiredSend(ShortWire& wire, Rank to, std::uint64_t tag, const void* data, std::int64_t bytes,
                     Completion* completion);
  void PostWiredRecv(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion);
  Operation* NewWiredOperation(Completion* completion, Rank peer, std::uint64_t tag, std::int64_t bytes, bool receives);
  // Moves bytes over the wires, and ends what has ended there; true when anything moved.
  bool ProgressWires(bool looks);
  // Where this rank waits for one short message of another node and nothing else, has the message's wire read in any
  // case, so that no look is needed at all wires; false: this rank waits for more, or for something else.
  bool MarkTheOneAwaited();
  // Ends the operations whose ends the wires have reported; to be called before operations are ended for another
  // reason.
  void TakeEndedOnWires();
  // What comes over the short wires.
  std::byte* BeginFrame(Rank peer, const ShortHeader& header) override;
  bool EndFrame(Rank peer, const ShortHeader& header) override;
  void TakeIn(Rank peer, std::uint64_t tag, Arrival arrival);
  // Gives `receive` its message.
  void Meet(Operation& receive, Arrival arrival);
  // Throws a message of `peer` away.
  void Drop(Rank peer, Arrival arrival);
  // Throws the messages away that have come, or are coming, over the wires, and for which `drops(peer, tag)` holds.
  void DropArrivals(absl::FunctionRef<bool(Rank, std::uint64_t)> drops);
  // Ends the receives from wires for which `ends` holds.
  void EndWiredRecvs(absl::FunctionRef<bool(const Operation&)> ends,
                     absl::FunctionRef<absl::Status(const Operation&)> why);
  // Waits until the machines of the peers have what was sent over the wires, or `end_ns`.
  void DeliverWired(std::int64_t end_ns);
  // Holds the sends of long, or of short, messages over the wires to `peer`, until it is known what has become of it.
  void HoldWiredSends(Rank peer, bool is_long);
  // Closes the wire to `peer` and holds the sends and receives that were under way on it.
  void HoldWired(Rank peer);

  // Closes the endpoints of peers that are newly lost, which ends the sends to them, and ends the receives from them.
  void CutLost();
  void CloseByForce(UcxEndpoint& endpoint);
  // Ends the sends to `peer`, whose endpoint has been closed, that UCX keeps until `peer` has room for messages.
  void EndUnansweredSends(Rank peer);
  // Ends receives that were being filled by a process that has ended.
  void EndWhatNeverComes();
  // Whether `peer`, a rank of this node, has said goodbye and closed its link: it takes no message any more.
  bool HasLeftNode(Rank peer) const;
  // Ends the sends to peers of this node that have left without taking them.
  void EndSendsToLeavers();
  // Ends the completion of `operation`, whose peer is lost or has left, though UCX has not ended the operation.
  void EndBeforeUcx(Operation& operation);
  // Throws messages away that have come for discarded groups and from lost peers: a bounded number in each call.
  void ThrowAwayUnwanted();
  // Throws the messages away whose tags are `tag` in the bits of `mask`, at most `most`; returns how many messages were
  // thrown away.
  int ThrowAway(ucp_tag_t tag, ucp_tag_t mask, int most);
  // Whether `source` of a tag that has come is a rank; what a stranger sends may name any source.
  bool IsRank(Rank source) const { return source < static_cast<Rank>(endpoints_.size()); }
  // Throws a message away that has been taken out of UCX's queue.
  void ThrowAway(ucp_tag_message_h message, const ucp_tag_recv_info_t& info);
  // Takes the result of a call of UCX for which nobody waits: a request, which is freed when it has ended, or a status.
  void Leave(ucs_status_ptr_t request);
  void FreeLeft();

  absl::Status ReachNodes(absl::Span<const PeerAddress> addresses, std::int64_t end_ns);
  absl::Status OpenEndpoints(absl::Span<const PeerAddress> addresses);
  // Whether messages to a rank go over UCX: within a container of a node. All others have wires.
  bool IsReachedOverUcx(const PeerAddress& address) const;
  std::size_t DescriptorsFor(absl::Span<const PeerAddress> addresses) const;
  absl::Status MeetNode(absl::Span<const PeerAddress> addresses, std::int64_t end_ns);
  absl::Status GreetAll(std::int64_t end_ns);
  absl::Status ConnectAll(Rank rank, absl::Span<const std::string> blobs, std::int64_t end_ns);
  // Goes on with the meeting of ranks on other nodes, without waiting; true once all have been met.
  absl::StatusOr<bool> AdvanceMeeting();
  absl::Status MakeWires(std::int64_t end_ns);
  absl::Status Exchange(Control::Kind kind, bool PeerNews::*heard, std::int64_t end_ns);
  void ReceiveControl();
  void SendControl(UcxEndpoint& to, const Control& control, Operation* receive = nullptr, absl::Status result = {});
  // Ends the receive that was to end when UCX has sent `send`, if there is one, and takes `send` back.
  void EndControl(ControlSend& send);
  void* PostTagged(absl::FunctionRef<ucs_status_ptr_t(const ucp_request_param_t&)> post,
                   ucp_tag_recv_nbx_callback_t callback, void* user_data, EndedInline* ended);
  void PostRecvNow(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion);
  // Gives queued receives the messages that have come for them; true when any left the queues.
  bool MatchQueued();
  // Posts `recv`, which is from any source, for the first message of `tag` from a rank that is not lost; false when
  // there is none. Throws messages away that come before from lost ranks and from sources that are no rank.
  bool ReceiveNext(std::uint64_t tag, const QueuedRecv& recv);
  bool ReceiveNextFromUcx(std::uint64_t tag, const QueuedRecv& recv);
  bool ReceiveNextFromWires(std::uint64_t tag, const QueuedRecv& recv);
  // Progresses UCX, where it may have something to do; true when it moved anything.
  bool ProgressUcx();
  void HandleFrame(std::size_t bytes);
  void Handle(Rank from, const Control& control);
  // Takes in what a control message that came behind the messages of `from` says of these, and answers it.
  void Answer(Rank from, const Control& control);
  void ReadLinks();
  // Progresses UCX and the wires until nothing is left to do, at most for kDrainLimit; true when nothing was left.
  bool ProgressAll();
  // Progresses UCX and arms it; true when UCX's descriptor will tell when there is more to do. False while UCX cannot
  // be armed: when it has more to do, or keeps messages for a peer whose memory for them is full, and gives no notice
  // when there is room again.
  bool Arm();
  // Waits for news of a link, for a Wake if `wakeable`, and for UCX: if `armed` until UCX has something to do,
  // otherwise a short time.
  void Wait(std::int64_t until_ns, bool armed, bool wakeable);
  // Moves messages (calling no completions) until `done` is true or `end_ns`; returns `done`.
  bool DriveUntil(std::int64_t end_ns, absl::FunctionRef<bool()> done);
  // Moves everything that was sent out of UCX; false when `give_up` or `end_ns` came first.
  bool Flush(std::int64_t end_ns, absl::FunctionRef<bool()> give_up);
  void SayFarewell(const absl::Status& cause);
  bool SendsEnded() const;
  void CloseWorker(bool aborts);

  absl::Status FirstLoss();
  // The error with which Connect ends before its time: the first loss, or what its watch says.
  absl::Status ErrorWhileConnecting();

  static void OnSent(void* request, ucs_status_t status, void* operation);
  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* operation);
  static void OnControlSent(void* request, ucs_status_t status, void* send);
  static void OnControl(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* transport);
  static void OnEndpointError(void* endpoint, ucp_ep_h ep, ucs_status_t status);

  const Library& ucp_;
  std::unique_ptr<Worker>
      worker_;  // exists until Shutdown; while it is destroyed it calls the callbacks above once more
  SharedRegion region_;
  NodeRendezvous rendezvous_;
  WireMeeting meeting_;
  absl::StatusOr<bool> met_ = false;     // what AdvanceMeeting said last
  const ConnectWatch* watch_ = nullptr;  // of the Connect under way
  const int connections_;
  const UniqueFd wake_;
  const std::string node_;
  const std::string container_ = ContainerName();

  Rank rank_ = -1;
  std::deque<UcxEndpoint> endpoints_;
  NodeLinks links_;
  Wires wires_;
  PeerHealth health_;
  std::vector<PeerNews> news_;
  ControlFrame control_in_;
  void* control_receive_ = nullptr;
  int control_sends_ = 0;  // control messages whose send UCX has not ended yet
  std::deque<ControlSend> controls_;
  std::vector<ControlSend*> free_controls_;
  // The most control messages that peers may still send: see kMaxControlsPerPeer.
  int control_left_ = 0;

  KeyedQueues<std::uint64_t, QueuedRecv> queued_{/*room=*/0};  // by tag; the first of each queue is from any source
  bool may_match_ = false;    // a message may have come, or a receive been queued, since the last MatchQueued
  bool wires_first_ = false;  // the next receive from any source looks at the wires before it looks at UCX
  int unprogressed_ = 0;      // calls of ProgressUcx since the last that progressed UCX
  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::size_t wired_operations_ = 0;  // those in use that are wired
  // By source and tag (TagOf), of the ranks with wires: the operations that wait for messages to come over a short
  // wire, and messages that wait for their receives.
  KeyedQueues<ucp_tag_t, std::uint32_t> expected_{/*room=*/0};
  std::uint32_t last_expected_ = 0;  // the operation that was added to expected_ last
  KeyedQueues<ucp_tag_t, Arrival> arrived_{/*room=*/0};
  EarlyBuffers early_;
  std::vector<Read> reads_;                            // the oldest read is the first
  std::vector<absl::Span<const std::byte>> secluded_;  // parts of the region that peers no longer see
  // Operations whose completions have ended though UCX has not ended the operations: see EndBeforeUcx.
  std::size_t orphans_ = 0;
  std::vector<ucs_status_ptr_t> left_;  // requests of UCX for which nobody waits
  EndedQueue ended_;                    // to be called by the next Progress
  std::vector<Held> held_;
  std::size_t losses_cut_ = 0;     // how many losses CutLost has seen
  bool a_link_has_ended_ = false;  // of the node's links
  std::size_t losses_seen_ = 0;    // how many losses Check has returned
  DiscardedGroups discarded_;
  std::size_t swept_ = 0;  // where the next ThrowAwayUnwanted goes on
  Notes notes_;
  std::uint64_t answers_ = 0;       // answers to AskWaitsFor that have come
  EndedInline* posting_ = nullptr;  // set while a receive is being posted
  bool greeted_ = false;            // the connections to every peer are set up
  bool shut_down_ = false;
  const std::atomic<Rank>* waits_for_ = nullptr;
  absl::Duration nap_ = kShortestNap;  // the length of the next Wait while UCX is not armed
  absl::Status cause_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_TRANSPORT_H_
