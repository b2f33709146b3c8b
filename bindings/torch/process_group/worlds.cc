#include "bindings/torch/process_group/worlds.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "bindings/torch/process_group/attempts.h"
#include "bindings/torch/process_group/timeout.h"
#include "bindings/torch/process_group/torch_store.h"
#include "tutti/bootstrap.h"

namespace tutti::dist {
namespace {

// Default groups by the store that all groups of a job share, and the rank in the job: the ranks of a test may be
// threads of one process.
struct WorldKey {
  const ::c10d::Store* store;
  Rank rank;
  bool on_gpu = false;
  auto operator<=>(const WorldKey&) const = default;
};

struct World {
  std::weak_ptr<Communicator> communicator;
  std::optional<int> gpu;
  std::string attempt;
};

struct Worlds {
  std::mutex mutex;
  std::map<WorldKey, World> by_key;
};

// Never destroyed: groups may end after the destructors of static objects have run.
Worlds& AllWorlds() {
  static auto* const worlds = new Worlds;
  return *worlds;
}

// Sets `known`, where it is not null, to what is known of the world.
std::shared_ptr<Communicator> FindWorld(const WorldKey& key, World* known = nullptr) {
  Worlds& worlds = AllWorlds();
  const std::lock_guard lock(worlds.mutex);
  const auto found = worlds.by_key.find(key);
  if (found == worlds.by_key.end()) return nullptr;
  if (known != nullptr) *known = found->second;
  return found->second.communicator.lock();
}

void RememberWorld(const WorldKey& key, World world) {
  Worlds& worlds = AllWorlds();
  const std::lock_guard lock(worlds.mutex);
  std::erase_if(worlds.by_key, [](const auto& entry) { return entry.second.communicator.expired(); });
  worlds.by_key[key] = std::move(world);
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

// `check`: see MakeTorchStore.
absl::StatusOr<std::shared_ptr<Communicator>> Connect(const ProcessGroupTutti::Request& request,
                                                      std::optional<int> gpu = std::nullopt,
                                                      std::function<absl::Status()> check = nullptr) {
  const Bootstrap bootstrap = {
      .identity = {.rank = request.rank, .size = request.size, .job_id = request.name, .launcher = "torch"},
      .store = MakeTorchStore(
          c10::make_intrusive<::c10d::PrefixStore>(absl::StrCat("attempt ", request.attempt), request.store),
          std::move(check)),
      .route = RouteOf(request.store_of_job.get())};
  const CommunicatorOptions options = {.timeout = absl::Milliseconds(request.timeout.count()), .cuda_device = gpu};
  return Communicator::Create(bootstrap, options);
}

// Connects the members at the newest attempt, whose name `request` gets. A rank other than 0 that waits in an attempt
// of an earlier life, or in one that rank 0 has given up, goes over to the one that rank 0 begins next.
absl::StatusOr<std::shared_ptr<Communicator>> ConnectAtNewestAttempt(ProcessGroupTutti::Request& request) {
  // The store looks for a newer attempt in its waits until the members are connected; later waits are those for groups
  // inside this one.
  struct Look {
    explicit Look(const ProcessGroupTutti::Request& request) : attempts(request.store, request.rank, request.size) {}
    Attempts attempts;
    std::atomic<bool> connecting = true;
  };
  const auto look = std::make_shared<Look>(request);
  const WaitClock::time_point end = Later(WaitClock::now(), request.timeout);
  while (true) {
    absl::StatusOr<std::string> attempt = look->attempts.Next(end);
    if (!attempt.ok()) return attempt.status();
    request.attempt = *attempt;
    absl::StatusOr<std::shared_ptr<Communicator>> world =
        Connect(request, /*gpu=*/std::nullopt, [look, name = *attempt] {
          return look->connecting.load() ? look->attempts.CheckIsNewest(name) : absl::OkStatus();
        });
    const bool again = !world.ok() && !absl::IsCancelled(world.status()) && WaitClock::now() < end &&
                       absl::IsAborted(look->attempts.CheckIsNewest(*attempt));
    if (again) continue;
    look->connecting.store(false);
    if (!world.ok()) look->attempts.GiveUp(*attempt, world.status());
    return world;
  }
}

WorldKey KeyOf(const ProcessGroupTutti::Request& request, bool on_gpu) {
  const bool is_default = request.global_ranks.empty();
  return {.store = request.store_of_job.get(),
          .rank = is_default ? request.rank : request.global_ranks[request.rank],
          .on_gpu = on_gpu};
}

}  // namespace

c10::intrusive_ptr<::c10d::Store> StoreOfJob(const c10::intrusive_ptr<::c10d::Store>& store) {
  auto* const prefixed = dynamic_cast<::c10d::PrefixStore*>(store.get());
  return prefixed == nullptr ? store : prefixed->getUnderlyingNonPrefixStore();
}

std::string AttemptOfDefaultGroup(const ProcessGroupTutti::Request& request) {
  World world;
  if (request.global_ranks.empty() || FindWorld(KeyOf(request, /*on_gpu=*/false), &world) == nullptr) return "";
  return world.attempt;
}

absl::StatusOr<ProcessGroupTutti::Request> OfNextAttempt(ProcessGroupTutti::Request request,
                                                         const std::string& parent) {
  // A store may be used by groups of other members under the same name.
  if (!request.global_ranks.empty()) {
    const std::size_t members = std::hash<std::string>()(absl::StrJoin(request.global_ranks, ","));
    request.store = c10::make_intrusive<::c10d::PrefixStore>(absl::StrCat("members ", members), request.store);
  }
  if (parent.empty()) return request;
  // This rank alone uses the key.
  const std::string key = absl::StrCat("tutti/attempts/", parent, "/", request.size, "/", request.rank);
  const absl::StatusOr<std::int64_t> times = MakeTorchStore(request.store)->Add(key, 1, absl::InfiniteFuture());
  if (!times.ok()) return times.status();
  request.attempt = absl::StrCat(parent, ".", *times);
  return request;
}

std::string NameOfAttempt(const ProcessGroupTutti::Request& request) {
  return absl::StrCat(request.name, ", attempt ", request.attempt);
}

absl::StatusOr<std::shared_ptr<Communicator>> JoinGroup(ProcessGroupTutti::Request& request) {
  const bool is_default = request.global_ranks.empty();
  const WorldKey key = KeyOf(request, /*on_gpu=*/false);
  if (!is_default) {
    if (const std::shared_ptr<Communicator> world = FindWorld(key); world != nullptr) {
      return world->Group(request.global_ranks, NameOfAttempt(request));
    }
  }
  if (is_default) {
    if (absl::Status status = CheckLaunchers(request); !status.ok()) return status;
  }
  absl::StatusOr<std::shared_ptr<Communicator>> world = ConnectAtNewestAttempt(request);
  if (world.ok() && is_default)
    RememberWorld(key, {.communicator = *world, .gpu = std::nullopt, .attempt = request.attempt});
  return world;
}

absl::StatusOr<std::shared_ptr<Communicator>> JoinGroupOnGpu(const ProcessGroupTutti::Request& request, int gpu,
                                                             bool shared) {
  const bool is_default = request.global_ranks.empty();
  const WorldKey key = KeyOf(request, /*on_gpu=*/true);
  if (!is_default) {
    World known;
    if (const std::shared_ptr<Communicator> world = FindWorld(key, &known); world != nullptr) {
      if (known.gpu != gpu) {
        return absl::InvalidArgumentError(absl::StrCat("a tensor is on cuda:", gpu, ", and rank ", key.rank,
                                                       " has joined the job with device_id=cuda:", *known.gpu));
      }
      return world->Group(request.global_ranks, NameOfAttempt(request));
    }
  }
  ProcessGroupTutti::Request own = request;
  own.store = c10::make_intrusive<::c10d::PrefixStore>("gpu", request.store);
  absl::StatusOr<std::shared_ptr<Communicator>> world = Connect(own, gpu);
  if (world.ok() && is_default && shared) {
    RememberWorld(key, {.communicator = *world, .gpu = gpu, .attempt = request.attempt});
  }
  return world;
}

}  // namespace tutti::dist
