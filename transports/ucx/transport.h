// Messages over UCX (shared memory within a node, TCP between nodes); regions of peers on the node by memory mapping.
// Payload never leaves UCX's tag interface; who is alive is learnt from the node's sockets (node_link.h) and from UCX's
// own errors, and judged in health.h.
#ifndef TUTTI_TRANSPORTS_UCX_TRANSPORT_H_
#define TUTTI_TRANSPORTS_UCX_TRANSPORT_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/unique_fd.h"
#include "memory/shared_region.h"
#include "transports/ucx/address.h"
#include "transports/ucx/control.h"
#include "transports/ucx/endpoint.h"
#include "transports/ucx/health.h"
#include "transports/ucx/node_link.h"
#include "transports/ucx/node_rendezvous.h"
#include "transports/ucx/worker.h"
#include "tutti/transport.h"

namespace tutti::ucx {

class UcxTransport final : public Transport {
 public:
  UcxTransport(std::unique_ptr<Worker> worker, SharedRegion region, NodeRendezvous rendezvous, UniqueFd wake,
               std::string node)
      : worker_(std::move(worker)),
        region_(std::move(region)),
        rendezvous_(std::move(rendezvous)),
        wake_(std::move(wake)),
        node_(std::move(node)) {}
  ~UcxTransport() override;

  absl::string_view name() const override { return "ucx"; }
  MappedRegion region() const override { return {region_.mapping.base(), region_.mapping.bytes()}; }
  absl::StatusOr<std::string> Address() override;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline) override;
  Endpoint& endpoint(Rank peer) override { return endpoints_[static_cast<std::size_t>(peer)]; }
  bool Progress() override;
  bool Drain() override;
  void Sleep(absl::Time until) override;
  void Wake() override;
  absl::Status Check() override;
  void Shutdown(const absl::Status& cause) override;

  // For endpoints.
  void PostSend(UcxEndpoint& to, std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion);
  void PostRecv(Rank from, std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion);

 private:
  // A Send or Recv that UCX has not ended yet. Pooled, so that in the long run nothing allocates.
  struct Operation {
    UcxTransport* transport = nullptr;
    Completion* completion = nullptr;  // nullptr: free
    void* request = nullptr;
    Rank peer = 0;
    std::uint64_t tag = 0;
    std::int64_t bytes = 0;
    bool receives = false;
  };
  // How a receive ended inside the call that posted it.
  struct EndedInline {
    bool ended = false;
    ucs_status_t status = UCS_OK;
    std::size_t bytes = 0;
  };
  struct Ended {
    Completion* completion;
    absl::Status status;
  };
  // A send that failed because of its peer: it ends with the verdict on that peer, once there is one.
  struct Held {
    Completion* completion;
    Rank peer;
  };
  struct ControlSend {
    UcxTransport* transport;
    ControlFrame frame;
  };
  struct PeerNews {
    bool hello = false;
    bool settled = false;
    bool goodbye_seen = false;
  };

  Operation* NewOperation(Completion* completion, Rank peer, std::uint64_t tag, std::int64_t bytes, bool receives);
  void Release(Operation* operation);
  void End(Completion* completion, absl::Status status) { ended_.push_back({completion, std::move(status)}); }
  void SendEnded(Operation* operation, ucs_status_t status);
  void RecvEnded(Operation* operation, ucs_status_t status, std::size_t received);
  void SendFailed(Completion* completion, Rank peer, ucs_status_t status);
  void EndHeld();
  bool CallEnded();

  absl::Status OpenEndpoints(absl::Span<const PeerAddress> addresses);
  absl::Status MeetNode(absl::Span<const PeerAddress> addresses, absl::Time deadline);
  absl::Status GreetAll(absl::Time deadline);
  absl::Status Exchange(Control::Kind kind, bool PeerNews::*heard, absl::Time deadline);
  void ReceiveControl();
  void SendControl(UcxEndpoint& to, const Control& control);
  void* PostTagged(void* data, std::size_t bytes, ucp_tag_t tag, ucp_tag_t mask, ucp_tag_recv_nbx_callback_t callback,
                   void* user_data, EndedInline* ended);
  void HandleFrame(std::size_t bytes);
  void Handle(Rank from, const Control& control);
  void ReadLinks();
  // Progresses UCX until nothing is left to do.
  void ProgressAll();
  // The same, and its descriptor will tell when that changes.
  void Arm();
  // Waits for UCX, a link or, if `wakeable`, a Wake.
  void Wait(absl::Time until, bool wakeable);
  // Moves messages (calling no completions) until `done` or the deadline; says which of them.
  bool DriveUntil(absl::Time deadline, absl::FunctionRef<bool()> done);
  // Moves what has been sent out of UCX; false when `give_up` or the deadline came first.
  bool Flush(absl::Time deadline, absl::FunctionRef<bool()> give_up);
  void SayFarewell(const absl::Status& cause);
  void CloseWorker();

  static void OnSent(void* request, ucs_status_t status, void* operation);
  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* operation);
  static void OnControlSent(void* request, ucs_status_t status, void* send);
  static void OnControl(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* transport);
  static void OnEndpointError(void* endpoint, ucp_ep_h ep, ucs_status_t status);

  std::unique_ptr<Worker> worker_;  // until Shutdown
  SharedRegion region_;
  NodeRendezvous rendezvous_;
  const UniqueFd wake_;
  const std::string node_;

  Rank rank_ = -1;
  std::deque<UcxEndpoint> endpoints_;
  NodeLinks links_;
  PeerHealth health_;
  std::vector<PeerNews> news_;
  ControlFrame control_in_;
  void* control_receive_ = nullptr;
  int control_sends_ = 0;  // that UCX has not ended yet

  std::deque<Operation> operations_;
  std::vector<Operation*> free_operations_;
  std::vector<Ended> ended_;    // to be called by the next Progress
  std::vector<Ended> calling_;  // being called; swapped with `ended_`
  std::vector<Held> held_;
  EndedInline* posting_ = nullptr;  // set while a receive is being posted
  bool greeted_ = false;            // every peer's connections are set up
  bool verdict_seen_ = false;       // Check has returned an error
  bool shut_down_ = false;
  absl::Status cause_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_TRANSPORT_H_
