#include "comm/runtime.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/config.h"

namespace tutti {
namespace {

// The rank's own view, by rank of the world.
std::vector<Presence*> PresenceOfAll(Transport& transport, Rank rank, int size) {
  std::vector<Presence*> presence(size);
  for (Rank peer = 0; peer < size; ++peer) {
    std::byte* const base = peer == rank ? transport.region().base : transport.endpoint(peer).region().base;
    presence[peer] = reinterpret_cast<Presence*>(base);
  }
  return presence;
}

// The node of each rank of the world, equal on all ranks: those of one node map the memory of the same ranks, each
// other among them.
absl::StatusOr<std::vector<int>> AgreeOnNodes(Store& store, const std::vector<Presence*>& presence, Rank rank,
                                              absl::Time deadline) {
  const auto size = static_cast<int>(presence.size());
  std::string mapped;
  for (const Presence* peer : presence) mapped.push_back(peer != nullptr ? '1' : '0');
  const absl::StatusOr<std::vector<std::string>> all = ExchangeBlobs(store, "mapped", rank, size, mapped, deadline);
  if (!all.ok()) return all.status();
  std::vector<int> nodes;
  for (Rank here = 0; here < size; ++here) {
    const std::string& view = (*all)[here];
    Rank first = 0;
    while (first < here && ((*all)[first] != view || view[first] != '1')) ++first;
    nodes.push_back(first < here ? nodes[first] : here);
  }
  return nodes;
}

// "all_reduce=ring,broadcast=binomial".
absl::StatusOr<std::map<Collective, const Schedule*>> ParseSchedules(absl::string_view text) {
  std::map<Collective, const Schedule*> schedules;
  for (absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(entry, absl::MaxSplits('=', 1));
    absl::StatusOr<Collective> collective = ParseCollective(parts.first);
    if (!collective.ok()) return collective.status();
    absl::StatusOr<const Schedule*> schedule = FindSchedule(*collective, parts.second);
    if (!schedule.ok()) return schedule.status();
    schedules[*collective] = *schedule;
  }
  return schedules;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Runtime>> StartRuntime(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport,
                                                      const CommunicatorOptions& options) {
  const Rank rank = bootstrap.identity.rank;
  const int size = bootstrap.identity.size;
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  auto runtime = std::make_shared<Runtime>();
  runtime->store = bootstrap.store;
  runtime->timeout = options.timeout.value_or(config->timeout);
  const absl::Time deadline = absl::Now() + runtime->timeout;
  const std::string schedule_names = options.schedules.value_or(config->schedule);
  absl::StatusOr<std::map<Collective, const Schedule*>> schedules = ParseSchedules(schedule_names);
  if (!schedules.ok()) return schedules.status();
  runtime->schedules = *std::move(schedules);
  runtime->transport = std::move(transport);
  Transport& wire = *runtime->transport;

  // Everything below relies on equal software: say so before anything can be misread.
  if (absl::Status status =
          CheckAgreement(*runtime->store, "communicator", rank, size,
                         {{"version", TUTTI_VERSION},
                          {"transport", std::string(wire.name())},
                          {"segment_bytes", absl::StrCat(options.segment_bytes)},
                          {"mapping", options.mapping == CommunicatorOptions::Mapping::kAuto ? "auto" : "never"},
                          {"schedules", schedule_names},
                          {"lanes", absl::StrCat(kLanes)}},
                         deadline);
      !status.ok()) {
    return status;
  }
  runtime->arena = std::make_shared<Arena>(runtime->transport, rank);
  absl::StatusOr<Buffer> presence = runtime->arena->Allocate(sizeof(Presence));
  if (!presence.ok()) return presence.status();
  runtime->presence = *std::move(presence);
  new (runtime->presence.data()) Presence;

  absl::StatusOr<std::string> address = wire.Address();
  if (!address.ok()) return address.status();
  absl::StatusOr<std::vector<std::string>> addresses =
      ExchangeBlobs(*runtime->store, "address", rank, size, *address, deadline);
  if (!addresses.ok()) return addresses.status();
  if (absl::Status status = wire.Connect(rank, *addresses, deadline); !status.ok()) return status;

  EngineOptions engine_options;
  engine_options.rank = rank;
  engine_options.timeout = runtime->timeout;
  engine_options.presence = PresenceOfAll(wire, rank, size);
  const auto mapped = std::count_if(engine_options.presence.begin(), engine_options.presence.end(),
                                    [](const Presence* p) { return p != nullptr; });
  engine_options.may_spin = mapped <= static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency());
  absl::StatusOr<std::vector<int>> nodes = AgreeOnNodes(*runtime->store, engine_options.presence, rank, deadline);
  if (!nodes.ok()) return nodes.status();
  runtime->nodes = *std::move(nodes);
  runtime->segment_bytes = options.segment_bytes;
  runtime->may_map = options.mapping == CommunicatorOptions::Mapping::kAuto;
  runtime->engine = std::make_unique<Engine>(runtime->transport, std::move(engine_options));
  return runtime;
}

PlanOptions PlanOptionsOf(const Runtime& runtime, const Channel& channel) {
  PlanOptions options = {.segment_bytes = runtime.segment_bytes};
  for (Rank rank = 0; rank < channel.size(); ++rank) {
    options.nodes.push_back(runtime.nodes[channel.peer(rank).world_rank]);
  }
  // A plan that maps peers must be right for all ranks.
  options.peers_mapped = runtime.may_map && options.one_node();
  return options;
}

absl::StatusOr<Buffer> NewControlBlock(Arena& arena) {
  absl::StatusOr<Buffer> block = arena.Allocate(sizeof(ControlBlock));
  if (block.ok()) new (block->data()) ControlBlock;
  return block;
}

std::unique_ptr<Channel> OpenChannel(Runtime& runtime, Rank rank, const std::vector<GroupMember>& members,
                                     Buffer control) {
  std::vector<Channel::Peer> peers(members.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    Channel::Peer& peer = peers[i];
    peer.world_rank = members[i].world_rank;
    peer.channel = members[i].channel;
    peer.endpoint = &runtime.transport->endpoint(peer.world_rank);
    peer.region = static_cast<Rank>(i) == rank ? runtime.transport->region() : peer.endpoint->region();
    const std::int64_t offset = members[i].offset;
    const bool inside = offset >= 0 && offset <= peer.region.bytes - std::int64_t{sizeof(ControlBlock)};
    if (peer.region.base != nullptr && inside) {
      peer.control = reinterpret_cast<ControlBlock*>(peer.region.base + offset);
    }
  }
  return std::make_unique<Channel>(*runtime.engine, runtime.arena, rank, std::move(peers), std::move(control));
}

}  // namespace tutti
