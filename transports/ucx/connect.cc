// The creation of a UCX transport, and its connection to the other ranks.
#include <net/if.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/boot_id.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/standard_descriptors.h"
#include "transports/ucx/descriptors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti {
namespace ucx {
namespace {

// The descriptors that one rank needs: four of this transport's own; UCX 1.13 to 1.22 have 12 open, and a few more
// while they start.
constexpr std::size_t kDescriptors = 20;

constexpr int kMaxSize = kControlSource;

absl::Status CheckInterface(const std::string& interface) {
  if (if_nametoindex(interface.c_str()) != 0) return absl::OkStatus();
  std::vector<std::string> names;
  if (struct if_nameindex* all = if_nameindex(); all != nullptr) {
    for (struct if_nameindex* i = all; i->if_index != 0; ++i) names.push_back(i->if_name);
    if_freenameindex(all);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("interface '", interface, "' does not exist; this node has ", absl::StrJoin(names, ", ")));
}

absl::Status About(Rank rank, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("rank ", rank, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::string> UcxTransport::Address() {
  if (worker_ == nullptr) return absl::FailedPreconditionError("Address: the transport has been shut down");
  PeerAddress address;
  address.node = node_;
  address.user = geteuid();
  address.container = container_;
  address.socket = rendezvous_.socket_name();
  address.nonce = rendezvous_.nonce();
  address.region_bytes = region_.mapping.bytes();
  absl::StatusOr<std::string> worker = worker_->Address();
  if (!worker.ok()) return worker.status();
  address.worker = *std::move(worker);
  address.wire = meeting_.address();
  return Encode(address);
}

absl::Status UcxTransport::Connect(Rank rank, absl::Span<const std::string> blobs, absl::Time deadline,
                                   ConnectWatch watch) {
  watch_ = &watch;
  absl::Status connected = ConnectAll(rank, blobs, NanosAt(deadline));
  watch_ = nullptr;
  return connected;
}

absl::Status UcxTransport::ConnectAll(Rank rank, absl::Span<const std::string> blobs, std::int64_t end_ns) {
  const int size = static_cast<int>(blobs.size());
  if (worker_ == nullptr || !endpoints_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, ": Connect was called before, or the transport has been shut down"));
  }
  if (size > kMaxSize)
    return absl::InvalidArgumentError(absl::StrCat(size, " ranks; UCX tags have room for ", kMaxSize));
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in a world of ", size));
  }
  std::vector<PeerAddress> addresses;
  for (Rank peer = 0; peer < size; ++peer) {
    absl::StatusOr<PeerAddress> address = DecodeAddress(blobs[static_cast<std::size_t>(peer)]);
    if (!address.ok()) return About(peer, address.status());
    addresses.push_back(*std::move(address));
  }
  if (!Equal(addresses[static_cast<std::size_t>(rank)].nonce, rendezvous_.nonce())) {
    return absl::InvalidArgumentError(
        absl::StrCat("addresses[", rank, "] must be the address that rank ", rank, " has made"));
  }

  rank_ = rank;
  for (Rank peer = 0; peer < size; ++peer) endpoints_.emplace_back(this, peer);
  endpoints_[static_cast<std::size_t>(rank)].Show(region());
  health_.Reset(size);
  news_.resize(static_cast<std::size_t>(size));
  control_left_ = kMaxControlsPerPeer * size + 1;
  if (absl::Status status = NeedDescriptors(DescriptorsFor(addresses), absl::StrCat("a world of ", size, " ranks"));
      !status.ok()) {
    return status;
  }
  if (absl::Status status = MeetNode(addresses, end_ns); !status.ok()) return status;
  if (absl::Status status = ReachNodes(addresses, end_ns); !status.ok()) return status;
  if (absl::Status status = MakeWires(end_ns); !status.ok()) return status;
  if (absl::Status status = OpenEndpoints(addresses); !status.ok()) return status;
  absl::Status greeted = GreetAll(end_ns);
  meeting_.Close();  // who has greeted this rank has reached it before
  CloseOnExecBehind(worker_->event_fd());
  CloseSharedFilesOnExec();
  return greeted;
}

// The descriptors that connecting needs. A rank of this node has a socket, a process and an event to wake it; a rank
// that UCX does not reach has its wires, and one more while the two meet; a rank in another container of this node has
// both. Meeting the ranks needs some more.
std::size_t UcxTransport::DescriptorsFor(absl::Span<const PeerAddress> addresses) const {
  std::size_t needed = 4;
  for (const PeerAddress& address : addresses) {
    if (address.node == node_) needed += 3;
    if (!IsReachedOverUcx(address)) needed += static_cast<std::size_t>(connections_) + 2;
  }
  return needed;
}

absl::Status UcxTransport::MeetNode(absl::Span<const PeerAddress> addresses, std::int64_t end_ns) {
  std::vector<NodeMember> members;
  for (Rank peer = 0; peer < static_cast<Rank>(addresses.size()); ++peer) {
    const PeerAddress& address = addresses[static_cast<std::size_t>(peer)];
    if (peer == rank_ || address.node != node_) continue;
    if (address.user != geteuid()) {
      return absl::PermissionDeniedError(absl::StrCat("rank ", peer, " runs as user ", address.user, ", rank ", rank_,
                                                      " as ", geteuid(),
                                                      ": memory cannot be shared between users; give ranks of "
                                                      "different users different node names (TUTTI_NODE, "
                                                      "UcxOptions.node)"));
    }
    members.push_back({peer, &address});
  }
  absl::StatusOr<std::vector<NodePeer>> peers = rendezvous_.Meet(rank_, region_, wake_, members, end_ns, *watch_);
  if (!peers.ok()) return peers.status();
  for (NodePeer& peer : *peers) {
    endpoints_[static_cast<std::size_t>(peer.rank)].Keep(std::move(peer.region), std::move(peer.wake), peer.memory);
  }
  return links_.Watch(*peers);
}

bool UcxTransport::IsReachedOverUcx(const PeerAddress& address) const {
  return address.node == node_ && address.container == container_;
}

// Begins to meet the ranks that UCX does not reach, and waits until each has answered: a network that loses what one of
// two ranks sends shows early. The meeting goes on until all ranks have greeted this one.
absl::Status UcxTransport::ReachNodes(absl::Span<const PeerAddress> addresses, std::int64_t end_ns) {
  std::vector<WireMember> members;
  for (Rank peer = 0; peer < static_cast<Rank>(addresses.size()); ++peer) {
    const PeerAddress& address = addresses[static_cast<std::size_t>(peer)];
    if (IsReachedOverUcx(address)) continue;
    if (address.wire.empty() || meeting_.address().empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the network interface of rank ", address.wire.empty() ? peer : rank_,
                       " has no IP address, over which rank ", address.wire.empty() ? rank_ : peer,
                       " on another node, or in another container, would reach it; name an interface that has one "
                       "(UcxOptions.interface, TUTTI_INTERFACE)"));
    }
    members.push_back({peer, address.wire, address.nonce});
  }
  if (absl::Status begun = meeting_.Begin(rank_, rendezvous_.nonce(), std::move(members), connections_ + 1);
      !begun.ok()) {
    return begun;
  }
  absl::Status error;
  const bool reached = DriveUntil(end_ns, [&] {
    error = met_.ok() ? (*watch_)() : met_.status();
    return !error.ok() || meeting_.reached();
  });
  return reached ? error : meeting_.Unanswered();
}

absl::StatusOr<bool> UcxTransport::AdvanceMeeting() {
  absl::StatusOr<bool> met = meeting_.Advance();
  const absl::Status watched = wires_.Watch(meeting_.TakeMet(), static_cast<int>(endpoints_.size()));
  return watched.ok() ? met : watched;
}

// Waits for the connections that the others make. A rank that dies meanwhile is found by its wires once they are up,
// and before that by the watch of Connect.
absl::Status UcxTransport::MakeWires(std::int64_t end_ns) {
  absl::Status error;
  const bool all_met = DriveUntil(end_ns, [&] {
    error = met_.ok() ? ErrorWhileConnecting() : met_.status();
    return !error.ok() || *met_;
  });
  if (!error.ok()) return error;
  return all_met ? absl::OkStatus() : meeting_.Unmet();
}

// Opens UCX's connections to the ranks that UCX reaches, this rank included.
absl::Status UcxTransport::OpenEndpoints(absl::Span<const PeerAddress> addresses) {
  for (UcxEndpoint& endpoint : endpoints_) {
    const PeerAddress& address = addresses[static_cast<std::size_t>(endpoint.peer())];
    if (!IsReachedOverUcx(address)) continue;
    ucp_ep_params_t params = {};
    params.field_mask =
        UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(address.worker.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {OnEndpointError, &endpoint};
    const ucs_status_t status = ucp_.ucp_ep_create(worker_->get(), &params, &endpoint.ep);
    if (status == UCS_OK) continue;
    return absl::UnavailableError(
        absl::StrCat("rank ", endpoint.peer(), " cannot be reached: UCX: ", ucp_.ucs_status_string(status)));
  }
  return absl::OkStatus();
}

// Exchanges first messages with every peer, and with this rank itself: a peer that cannot be reached is found here, and
// no later message has to wait until UCX has set its connections up. UCX sets up connections lazily: two ends learn
// each other's names when the first message needs an answer, as the greeting does. When the greeting and a flush have
// ended, this rank's connections are up, and a second message tells the peers that they are up: UCX 1.13 (as Debian
// builds it) aborts a process that closes a connection while it still owes an answer.
absl::Status UcxTransport::GreetAll(std::int64_t end_ns) {
  ReceiveControl();
  if (absl::Status status = Exchange(Control::Kind::kHello, &PeerNews::hello, end_ns); !status.ok()) return status;
  absl::Status error;
  const bool flushed = Flush(end_ns, [&] { return !(error = ErrorWhileConnecting()).ok(); });
  if (!error.ok()) return error;
  if (!flushed) {
    return absl::DeadlineExceededError(absl::StrCat("the connections of rank ", rank_, " were not set up in time"));
  }
  absl::Status settled = Exchange(Control::Kind::kSettled, &PeerNews::settled, end_ns);
  greeted_ = settled.ok();
  return settled;
}

absl::Status UcxTransport::FirstLoss() {
  health_.Conclude(MonotonicNanos());
  return health_.losses().empty() ? absl::OkStatus() : health_.losses().front().cause;
}

absl::Status UcxTransport::ErrorWhileConnecting() {
  absl::Status loss = FirstLoss();
  return loss.ok() ? (*watch_)() : loss;
}

// Sends a control message to every peer and waits for the same from each.
absl::Status UcxTransport::Exchange(Control::Kind kind, bool PeerNews::*heard, std::int64_t end_ns) {
  Control control;
  control.kind = kind;
  control.from = rank_;
  for (UcxEndpoint& endpoint : endpoints_) {
    control.reads = kind == Control::Kind::kHello && endpoint.memory().readable();
    SendControl(endpoint, control);
  }
  const auto missing = [&] {
    return std::find_if(news_.begin(), news_.end(), [heard](const PeerNews& news) { return !(news.*heard); });
  };
  absl::Status error;
  const bool in_time = DriveUntil(end_ns, [&] {
    error = ErrorWhileConnecting();
    return !error.ok() || (missing() == news_.end() && control_sends_ == 0);
  });
  if (!error.ok() || in_time) return error;
  if (missing() == news_.end()) {
    return absl::DeadlineExceededError(absl::StrCat("the peers did not take the greeting of rank ", rank_, " in time"));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", missing() - news_.begin(), " did not greet rank ", rank_, " in time"));
}

}  // namespace ucx

absl::StatusOr<std::unique_ptr<Transport>> MakeUcxTransport(const UcxOptions& ucx_options,
                                                            const TransportOptions& options) {
  HoldStandardDescriptors();
  // Descriptors are counted first: without a free descriptor UCX cannot even be loaded, and later aborts the process.
  if (absl::Status status = NeedDescriptors(ucx::kDescriptors, "a rank that uses UCX"); !status.ok()) return status;
  const std::string interface = ucx_options.interface.empty() ? "lo" : ucx_options.interface;
  if (absl::Status status = ucx::CheckInterface(interface); !status.ok()) return status;
  absl::StatusOr<std::string> node = ucx_options.node;
  if (ucx_options.node.empty()) node = BootId();
  if (!node.ok()) return node.status();
  absl::StatusOr<SharedRegion> region = CreateSharedRegion(options.region_bytes);
  if (!region.ok()) return region.status();
  absl::StatusOr<ucx::NodeRendezvous> rendezvous = ucx::NodeRendezvous::Open();
  if (!rendezvous.ok()) return rendezvous.status();
  if (ucx_options.connections < 1 || ucx_options.connections > ucx::kMaxWireConnections) {
    return absl::InvalidArgumentError(absl::StrCat("UcxOptions.connections is ", ucx_options.connections,
                                                   ", but must be in 1…", ucx::kMaxWireConnections));
  }
  absl::StatusOr<ucx::WireMeeting> meeting = ucx::WireMeeting::Open(interface);
  if (!meeting.ok()) return meeting.status();
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  absl::StatusOr<std::unique_ptr<ucx::Worker>> worker = ucx::Worker::Create();
  if (!worker.ok()) return worker.status();
  return std::make_unique<ucx::UcxTransport>(*std::move(worker), *std::move(region), *std::move(rendezvous),
                                             *std::move(meeting), ucx_options.connections, std::move(wake),
                                             *std::move(node));
}

}  // namespace tutti
