#include "comm/runtime.h"

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/config.h"
#include "comm/bootstrap_exchange.h"
#include "comm/device_parts.h"
#include "comm/first_cause.h"
#include "comm/interface_choice.h"
#include "comm/processors.h"
#include "engine/device_compute.h"
#include "engine/executors.h"
#include "engine/host_executor.h"
#include "engine/stream_executor.h"
#include "memory/cuda_summary.h"
#include "plan/registry.h"

namespace tutti {
namespace {

// The name of the agreement in which the ranks meet, first or after the exchange of their places.
constexpr absl::string_view kAgreement = "communicator";

// The presence words of each rank of the world, as mapped by `rank`; null where a rank's memory is not mapped.
std::vector<Presence*> PresenceOfAll(Transport& transport, Rank rank, int size) {
  std::vector<Presence*> presence(size);
  for (Rank peer = 0; peer < size; ++peer) {
    std::byte* const base = peer == rank ? transport.region().base : transport.endpoint(peer).region().base;
    presence[peer] = reinterpret_cast<Presence*>(base);
  }
  return presence;
}

// The nodes and the processors of the ranks, as the ranks have told each other.
struct Places {
  std::vector<int> nodes;  // the node of each rank of the world
  // Processors that the ranks of a node may run on: of this rank's node, and of the node that has fewest, which is
  // equal on all ranks; 0: not known.
  int own_cores = 0;
  int fewest_cores = 0;
  // Every rank can read the processes of the other ranks on its node.
  bool reads_processes = true;
};

// Whether `rank` can read the processes of all ranks whose memory is mapped.
bool ReadsProcesses(Transport& transport, const std::vector<Presence*>& presence, Rank rank) {
  for (Rank peer = 0; peer < static_cast<Rank>(presence.size()); ++peer) {
    const bool is_mapped_peer = peer != rank && presence[static_cast<std::size_t>(peer)] != nullptr;
    if (is_mapped_peer && !transport.endpoint(peer).reads_process()) return false;
  }
  return true;
}

// Finds the nodes: ranks are on one node when they map the memory of the same ranks, their own included.
absl::StatusOr<Places> AgreeOnPlaces(Store& store, Transport& transport, const std::vector<Presence*>& presence,
                                     Rank rank, std::int64_t end_ns) {
  const auto size = static_cast<int>(presence.size());
  std::string mapped;
  for (const Presence* peer : presence) mapped.push_back(peer != nullptr ? '1' : '0');
  const char* const reads = ReadsProcesses(transport, presence, rank) ? "reads" : "maps";
  const absl::StatusOr<std::vector<std::string>> all = ExchangeBlobs(
      store, "places", rank, size, absl::StrCat(mapped, " ", reads, " ", AllowedProcessors()), TimeAt(end_ns));
  if (!all.ok()) return all.status();
  std::vector<std::string> views;
  std::map<int, std::vector<std::string>> processors;  // by node: the processors of its ranks
  Places places;
  for (Rank here = 0; here < size; ++here) {
    const std::vector<std::string> said = absl::StrSplit((*all)[here], absl::MaxSplits(' ', 2));
    const std::string& view = said[0];
    if (said.size() != 3 || view.size() != presence.size()) {
      return absl::InternalError(absl::StrCat("rank ", here, " does not say which ranks it maps"));
    }
    Rank first = 0;
    while (first < here && (views[first] != view || view[first] != '1')) ++first;
    places.nodes.push_back(first < here ? places.nodes[first] : here);
    processors[places.nodes.back()].push_back(said[2]);
    places.reads_processes &= said[1] == "reads";
    views.push_back(view);
  }
  places.own_cores = CountProcessors(processors[places.nodes[rank]]);
  places.fewest_cores = places.own_cores;
  for (const auto& [node, allowed] : processors) {
    places.fewest_cores = std::min(places.fewest_cores, CountProcessors(allowed));
  }
  return places;
}

}  // namespace

Runtime::~Runtime() {
  if (arena != nullptr) arena->SetReclaim(nullptr);
  if (engine != nullptr) engine->Stop();
}

void Runtime::Register(PlanCache* cache) {
  const MutexLock lock(caches_mutex_);
  caches_.push_back(cache);
}

void Runtime::Unregister(PlanCache* cache) {
  const MutexLock lock(caches_mutex_);
  std::erase(caches_, cache);
}

void Runtime::Reclaim() {
  {
    const MutexLock lock(caches_mutex_);
    for (PlanCache* const cache : caches_) cache->DropIdle();
  }
  lent->Sweep();
}

namespace {

absl::Status CheckOptions(const CommunicatorOptions& options, Rank rank) {
  if (options.timeout.has_value() && *options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("CommunicatorOptions of rank ", rank, ": timeout ",
                                                   absl::FormatDuration(*options.timeout), " must be positive"));
  }
  if (options.gpu_transport.has_value()) {
    if (absl::Status status = CheckGpuTransport(*options.gpu_transport); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("CommunicatorOptions of rank ", rank, ": ", status.message()));
    }
  }
  if (options.segment_bytes < kMinSegmentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("CommunicatorOptions of rank ", rank, ": segment_bytes ",
                                                   options.segment_bytes, " must be ", kMinSegmentBytes, " or more"));
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const DeviceParts& parts, int device, Rank rank) {
  const CudaRuntime& cuda = *parts.cuda;
  int count = 0;
  if (const CudaError error = cuda.device_count(&count); error != kCudaSuccess) {
    return CudaStatus(cuda, error, "to count the devices");
  }
  const std::string what = absl::StrCat("CommunicatorOptions of rank ", rank, ": cuda_device ", device);
  if (device < 0 || device >= count) {
    return absl::InvalidArgumentError(absl::StrCat(what, " must be in 0…", count - 1, ", the devices of this process"));
  }
  const CudaDeviceScope scope(cuda, device);
  if (scope.error() != kCudaSuccess) return CudaStatus(cuda, scope.error(), what);
  absl::Status loaded = LoadOneKernel(*parts.kernels);
  if (loaded.ok()) return loaded;
  if (absl::IsResourceExhausted(loaded)) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": ", loaded.message()));
  }
  const absl::StatusOr<DeviceSummary> summary = SummarizeDevice(cuda, device);
  if (!summary.ok()) return summary.status();
  return absl::Status(loaded.code(),
                      absl::StrCat(what, ", ", summary->name, " of compute capability ", summary->compute_capability,
                                   ", cannot run Tutti's kernels, which are built for 8.0 and newer, or for what "
                                   "CMAKE_CUDA_ARCHITECTURES named: ",
                                   loaded.message()));
}

// The settings that a rank takes from CommunicatorOptions and the configuration, before it has met any other rank.
struct OwnSettings {
  std::map<Collective, const Schedule*> schedules = {};
  std::string schedule_names = {};
  std::string gpu_transport = {};
  std::optional<DeviceParts> device_parts = {};  // where CommunicatorOptions::cuda_device is set
};

absl::StatusOr<OwnSettings> CheckSettings(const CommunicatorOptions& options, const Config& config, Rank rank) {
  if (absl::Status status = CheckOptions(options, rank); !status.ok()) return status;
  if (absl::Status status = SealExtensions(); !status.ok()) return status;
  OwnSettings settings = {.schedule_names = options.schedules.value_or(config.schedule),
                          .gpu_transport = options.gpu_transport.value_or(config.gpu_transport)};
  absl::StatusOr<std::map<Collective, const Schedule*>> schedules = ParseSchedules(settings.schedule_names);
  if (!schedules.ok()) {
    return absl::Status(schedules.status().code(),
                        absl::StrCat(options.schedules.has_value() ? "schedules=" : "TUTTI_SCHEDULE=",
                                     settings.schedule_names, ": ", schedules.status().message()));
  }
  settings.schedules = *std::move(schedules);
  if (options.cuda_device.has_value()) {
    absl::StatusOr<DeviceParts> parts = PartsOfThisProcess();
    if (!parts.ok()) {
      return absl::Status(parts.status().code(), absl::StrCat("CommunicatorOptions of rank ", rank, ": cuda_device ",
                                                              *options.cuda_device, ": ", parts.status().message()));
    }
    if (absl::Status status = CheckDevice(*parts, *options.cuda_device, rank); !status.ok()) return status;
    settings.device_parts = *std::move(parts);
  }
  return settings;
}

}  // namespace

absl::Status FailSetUp(const Bootstrap& bootstrap, absl::Status cause) {
  const Identity& own = bootstrap.identity;
  if (bootstrap.route.has_value()) cause = StayAway(*bootstrap.store, kPlacesExchange, own.rank, own.size, cause);
  return FailAgreement(bootstrap, std::move(cause));
}

absl::Status FailAgreement(const Bootstrap& bootstrap, absl::Status cause) {
  const Identity& own = bootstrap.identity;
  return StayAway(*bootstrap.store, absl::StrCat("agreement/", kAgreement), own.rank, own.size, std::move(cause));
}

absl::StatusOr<std::shared_ptr<Runtime>> StartRuntime(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport,
                                                      const CommunicatorOptions& options) {
  const Rank rank = bootstrap.identity.rank;
  const int size = bootstrap.identity.size;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return FailAgreement(bootstrap, config.status());
  if (rank == 0) WarnOfUnknownVariables();
  absl::StatusOr<OwnSettings> settings = CheckSettings(options, *config, rank);
  if (!settings.ok()) return FailAgreement(bootstrap, settings.status());
  auto runtime = std::make_shared<Runtime>();
  runtime->store = bootstrap.store;
  runtime->timeout = options.timeout.value_or(config->timeout);
  const std::int64_t end_ns = NanosIn(runtime->timeout);
  runtime->schedules = std::move(settings->schedules);
  if (const std::optional<DeviceParts>& parts = settings->device_parts; parts.has_value()) {
    runtime->device = {
        .cuda = parts->cuda, .index = *options.cuda_device, .compute = parts->compute, .recode = parts->recode};
    runtime->native = parts->native;
  }
  runtime->transport = std::move(transport);
  Transport& wire = *runtime->transport;

  // Everything below relies on equal software, so versions are compared before anything can be misread.
  if (absl::Status status =
          CheckAgreement(*runtime->store, kAgreement, rank, size,
                         {{"version", TUTTI_VERSION},
                          {"extensions", ExtensionNames()},
                          {"transport", std::string(wire.name())},
                          {"segment_bytes", absl::StrCat(options.segment_bytes)},
                          {"mapping", options.mapping == CommunicatorOptions::Mapping::kAuto ? "auto" : "never"},
                          {"schedules", settings->schedule_names},
                          {"measure_links", !config->measure_links   ? "between nodes"
                                            : *config->measure_links ? "1"
                                                                     : "0"},
                          {"verify", config->verify},
                          {"connections", absl::StrCat(config->connections)},
                          {"cuda_device", options.cuda_device.has_value() ? "one" : "none"},
                          {"gpu_transport", settings->gpu_transport},
                          {"lanes", absl::StrCat(kLanes)}},
                         TimeAt(end_ns));
      !status.ok()) {
    return status;
  }
  if (runtime->device.has_value()) {
    absl::StatusOr<GpuTransportChoice> choice =
        AgreeOnGpuTransport(*runtime->store, rank, size, settings->gpu_transport, *runtime->device->cuda,
                            runtime->device->index, settings->device_parts->without_nccl, end_ns);
    if (!choice.ok()) return choice.status();
    runtime->gpu_transport = *std::move(choice);
  }
  runtime->arena = std::make_shared<Arena>(runtime->transport, rank);
  runtime->lent = std::make_shared<LentMemory>();
  runtime->blocks = std::make_shared<ControlBlocks>(runtime->arena);
  runtime->arena->SetReclaim([owner = runtime.get()] { owner->Reclaim(); });
  constexpr absl::string_view kAddresses = "address";
  absl::StatusOr<Buffer> presence = runtime->arena->Allocate(sizeof(Presence));
  if (!presence.ok()) return StayAway(*runtime->store, kAddresses, rank, size, presence.status());
  runtime->presence = *std::move(presence);
  new (runtime->presence.data()) Presence;

  absl::StatusOr<std::string> address = wire.Address();
  if (!address.ok()) return StayAway(*runtime->store, kAddresses, rank, size, address.status());
  absl::StatusOr<std::vector<std::string>> addresses =
      ExchangeBlobs(*runtime->store, kAddresses, rank, size, *address, TimeAt(end_ns));
  if (!addresses.ok()) return addresses.status();
  // From here on peers may hear of this rank's end, and must hear its cause, which may be another rank's death.
  const auto give_up = [&](const absl::Status& mine) {
    absl::Status cause = FirstCause(*runtime->store, rank, mine);
    wire.Shutdown(cause);
    if (rank == 0 && size > 1) LetOthersHear();
    return cause;
  };
  CauseWatch watch(*runtime->store);
  if (absl::Status status = wire.Connect(rank, *addresses, TimeAt(end_ns), [&] { return watch.Look(); });
      !status.ok()) {
    return give_up(status);
  }

  EngineOptions engine_options;
  engine_options.rank = rank;
  engine_options.timeout = runtime->timeout;
  engine_options.presence = PresenceOfAll(wire, rank, size);
  const auto mapped = std::count_if(engine_options.presence.begin(), engine_options.presence.end(),
                                    [](const Presence* p) { return p != nullptr; });
  absl::StatusOr<Places> places = AgreeOnPlaces(*runtime->store, wire, engine_options.presence, rank, end_ns);
  if (!places.ok()) return give_up(places.status());
  engine_options.may_spin = mapped <= static_cast<std::ptrdiff_t>(places->own_cores);
  runtime->nodes = std::move(places->nodes);
  runtime->reads_processes = places->reads_processes;
  CostModel model = DefaultCostModel();
  model.cores_per_node = places->fewest_cores;
  runtime->cost_model = std::make_shared<const CostModel>(model);
  runtime->measures_links = config->measure_links;
  runtime->segment_bytes = options.segment_bytes;
  runtime->may_map = options.mapping == CommunicatorOptions::Mapping::kAuto;
  std::unique_ptr<Executor> executor =
      std::make_unique<HostExecutor>(wire, *engine_options.presence[rank], engine_options.may_spin);
  if (runtime->device.has_value()) {
    executor = std::make_unique<Executors>(std::move(executor), std::make_unique<StreamExecutor>(*runtime->device));
  }
  try {
    runtime->engine =
        std::make_shared<Engine>(runtime->transport, runtime->arena, std::move(executor), std::move(engine_options));
  } catch (const std::system_error& error) {
    return give_up(absl::ResourceExhaustedError(absl::StrCat(
        "rank ", rank, " cannot start the thread of its engine: ", error.what(), "; raise the limit (ulimit -u)")));
  }
  return runtime;
}

PlanOptions PlanOptionsOf(const Runtime& runtime, const Channel& channel) {
  PlanOptions options = {.segment_bytes = runtime.segment_bytes, .cost_model = runtime.cost_model};
  for (Rank rank = 0; rank < channel.size(); ++rank) {
    options.nodes.push_back(runtime.nodes[channel.peer(rank).world_rank]);
  }
  options.peers_mapped = runtime.may_map;
  options.reads_processes = runtime.may_map && runtime.reads_processes;
  return options;
}

std::unique_ptr<Channel> OpenChannel(Runtime& runtime, Rank rank, const std::vector<GroupMember>& members) {
  std::vector<Channel::Peer> peers(members.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Channel::Peer& peer = peers[i];
    peer.world_rank = members[i].world_rank;
    peer.channel = members[i].channel;
    peer.generation = members[i].generation;
    peer.endpoint = &runtime.transport->endpoint(peer.world_rank);
    peer.region = static_cast<Rank>(i) == rank ? runtime.transport->region() : peer.endpoint->region();
    const std::int64_t offset = members[i].offset;
    const bool inside = offset >= 0 && offset <= peer.region.bytes - std::int64_t{sizeof(ControlBlock)};
    if (peer.region.base != nullptr && inside) {
      peer.control = reinterpret_cast<ControlBlock*>(peer.region.base + offset);
    }
  }
  return std::make_unique<Channel>(*runtime.engine, runtime.arena, runtime.lent, runtime.blocks, rank,
                                   std::move(peers));
}

}  // namespace tutti
