#include "bindings/torch/process_group/worlds.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "bindings/torch/process_group/torch_store.h"
#include "tutti/bootstrap.h"

namespace tutti::dist {
namespace {

// Default groups by the store that all groups of a job share, and the rank in the job: the ranks of a test may be
// threads of one process.
struct WorldKey {
  const ::c10d::Store* store;
  Rank rank;
  auto operator<=>(const WorldKey&) const = default;
};

struct Worlds {
  std::mutex mutex;
  std::map<WorldKey, std::weak_ptr<Communicator>> by_key;
};

// Never destroyed: groups may end after the destructors of static objects have run.
Worlds& AllWorlds() {
  static auto* const worlds = new Worlds;
  return *worlds;
}

const ::c10d::Store* JobStore(const c10::intrusive_ptr<::c10d::Store>& store) {
  auto* const prefixed = dynamic_cast<::c10d::PrefixStore*>(store.get());
  return prefixed == nullptr ? store.get() : prefixed->getUnderlyingNonPrefixStore().get();
}

std::shared_ptr<Communicator> FindWorld(const WorldKey& key) {
  Worlds& worlds = AllWorlds();
  const std::lock_guard lock(worlds.mutex);
  const auto found = worlds.by_key.find(key);
  return found == worlds.by_key.end() ? nullptr : found->second.lock();
}

void RememberWorld(const WorldKey& key, const std::shared_ptr<Communicator>& world) {
  Worlds& worlds = AllWorlds();
  const std::lock_guard lock(worlds.mutex);
  std::erase_if(worlds.by_key, [](const auto& entry) { return entry.second.expired(); });
  worlds.by_key[key] = world;
}

// The way to other nodes: the interface that is named for gloo, or else the one that leads to the host of torch's
// store.
Route RouteOf(const ::c10d::Store* store) {
  Route route = {.setting = "GLOO_SOCKET_IFNAME"};
  if (const char* const names = std::getenv("GLOO_SOCKET_IFNAME"); names != nullptr) {
    route.interface = std::string(names).substr(0, std::string_view(names).find(','));  // gloo accepts several names
  }
  if (const auto* const tcp = dynamic_cast<const ::c10d::TCPStore*>(store); tcp != nullptr) route.host = tcp->getHost();
  return route;
}

// Compares what torch says with what launchers say, if torch has read RANK and WORLD_SIZE.
absl::Status CheckLaunchers(const ProcessGroupTutti::Request& request) {
  for (const auto& [name, value] : {std::pair{"RANK", request.rank}, {"WORLD_SIZE", request.size}}) {
    const char* const text = std::getenv(name);
    int number = 0;
    if (text == nullptr || !absl::SimpleAtoi(text, &number) || number != value) return absl::OkStatus();
  }
  return CheckOtherLaunchers(request.rank, request.size);
}

absl::StatusOr<std::shared_ptr<Communicator>> Connect(const ProcessGroupTutti::Request& request) {
  const Bootstrap bootstrap = {
      .identity = {.rank = request.rank, .size = request.size, .job_id = request.name, .launcher = "torch"},
      .store = MakeTorchStore(request.store),
      .route = RouteOf(JobStore(request.store))};
  const CommunicatorOptions options = {.timeout = absl::Milliseconds(request.timeout.count())};
  return Communicator::Create(bootstrap, options);
}

}  // namespace

absl::StatusOr<std::shared_ptr<Communicator>> JoinGroup(const ProcessGroupTutti::Request& request) {
  const bool is_default = request.global_ranks.empty();
  const WorldKey key = {.store = JobStore(request.store),
                        .rank = is_default ? request.rank : request.global_ranks[request.rank]};
  if (!is_default) {
    if (const std::shared_ptr<Communicator> world = FindWorld(key); world != nullptr) {
      return world->Group(request.global_ranks, request.name);
    }
  }
  if (is_default) {
    if (absl::Status status = CheckLaunchers(request); !status.ok()) return status;
  }
  absl::StatusOr<std::shared_ptr<Communicator>> world = Connect(request);
  if (world.ok() && is_default) RememberWorld(key, *world);
  return world;
}

}  // namespace tutti::dist
