// What a communicator has on the GPU of its rank: options of plans, and the transport that carries them out.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "comm/runtime.h"
#include "tutti/staged_transport.h"

namespace tutti {
namespace {

// Round numbers of machines with several GPUs, which nobody has measured here: they order a native collective before
// the same collective by messages, each group of which costs as much as one, and kernels before what travels.
constexpr CostModel kGpus = {.within_node = {.latency_s = 20e-6, .bytes_per_s = 100e9},
                             .between_nodes = {.latency_s = 40e-6, .bytes_per_s = 10e9},
                             .step_s = 5e-6,
                             .memory_bytes_per_s = 1e12,
                             .native_within_node = {.latency_s = 20e-6, .bytes_per_s = 100e9},
                             .native_between_nodes = {.latency_s = 40e-6, .bytes_per_s = 10e9}};

}  // namespace

PlanOptions PlanOptionsOnDevice(const Runtime& runtime, const PlanOptions& on_host) {
  PlanOptions options = on_host;
  options.peers_mapped = false;
  // A stream carries out one launch after the other, and the messages of a launch at the same time: whoever cut a chunk
  // into segments would pay for more launches. Builders compute with small multiples of this number, which must fit.
  options.segment_bytes = std::int64_t{1} << 40;
  CostModel model = kGpus;
  if (runtime.gpu_transport.staged) {
    // The links are those of the host's messages. What the copies between GPU and host cost nobody has measured.
    model.within_node = on_host.cost_model->within_node;
    model.between_nodes = on_host.cost_model->between_nodes;
    model.native_within_node = {};
    model.native_between_nodes = {};
  } else {
    options.native = CollectivesOfNccl();
  }
  options.cost_model = std::make_shared<const CostModel>(model);
  return options;
}

namespace {

using NativeOrError = absl::StatusOr<std::unique_ptr<NativeTransport>>;

NativeOrError ConnectNccl(const Runtime& runtime, const Channel& channel, Store& store) {
  const std::int64_t end_ns = NanosIn(runtime.timeout);
  std::string id;
  if (channel.rank() == 0) {
    absl::StatusOr<std::string> made = runtime.native->NewId();
    if (!made.ok()) return made.status();
    id = *std::move(made);
  }
  const absl::StatusOr<std::vector<std::string>> ids =
      ExchangeBlobs(store, "native", channel.rank(), channel.size(), id, TimeAt(end_ns));
  if (!ids.ok()) return ids.status();
  return runtime.native->Connect((*ids)[0], channel.rank(), channel.size(), runtime.device->index, TimeAt(end_ns));
}

// Each rank tells the number under which it receives the staged messages of the group.
NativeOrError ConnectStaged(const Runtime& runtime, const Channel& channel, Store& store) {
  const std::optional<std::uint32_t> number = runtime.engine->TakeNumber();
  StagedOptions options = {.cuda = runtime.device->cuda,
                           .device = runtime.device->index,
                           .transport = runtime.transport,
                           .rank = channel.rank()};
  const auto give_back = [engine = runtime.engine, number] {
    if (number.has_value()) engine->GiveNumberBack(*number, {});
  };
  const absl::StatusOr<std::vector<std::string>> numbers =
      ExchangeBlobs(store, "staged", channel.rank(), channel.size(), number.has_value() ? absl::StrCat(*number) : "",
                    TimeAt(NanosIn(runtime.timeout)));
  absl::Status status = numbers.status();
  for (Rank rank = 0; status.ok() && rank < channel.size(); ++rank) {
    StagedOptions::Peer peer = {.world_rank = channel.peer(rank).world_rank};
    if (!absl::SimpleAtoi((*numbers)[static_cast<std::size_t>(rank)], &peer.number) || peer.number >= kMaxChannels) {
      status = absl::ResourceExhaustedError(absl::StrCat("rank ", rank,
                                                         " has no number left for the messages of its GPU: "
                                                         "it is in too many groups"));
    }
    options.peers.push_back(peer);
  }
  if (!status.ok()) {
    give_back();
    return status;
  }
  options.give_number_back = give_back;
  return MakeStagedTransport(std::move(options));
}

}  // namespace

absl::Status OpenOnDevice(const Runtime& runtime, Channel& channel, Store& store) {
  if (!runtime.device.has_value()) return absl::OkStatus();
  std::unique_ptr<NativeTransport> native;
  if (channel.size() > 1) {
    NativeOrError made =
        runtime.gpu_transport.staged ? ConnectStaged(runtime, channel, store) : ConnectNccl(runtime, channel, store);
    if (!made.ok()) return made.status();
    native = *std::move(made);
  }
  absl::StatusOr<std::unique_ptr<ChannelOnDevice>> made = ChannelOnDevice::Make(*runtime.device, std::move(native));
  if (!made.ok()) return made.status();
  runtime.engine->SetOnDevice(channel, *std::move(made));
  return absl::OkStatus();
}

}  // namespace tutti
