#include "tests/harness/world.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "tests/harness/fake_device.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const WorldOptions& options,
                                                         const std::shared_ptr<InprocHub>& hub, Rank rank) {
  const TransportOptions transport = {.region_bytes = options.region_bytes};
#ifdef TUTTI_WITH_UCX
  UcxOptions ucx;
  if (options.ranks_per_node > 0) ucx.node = "node " + std::to_string(rank / options.ranks_per_node);
  if (options.transport == "ucx") return MakeUcxTransport(ucx, transport);
#endif
  return MakeInprocTransport(hub, transport);
}

absl::StatusOr<std::unique_ptr<Communicator>> Join(Rank rank, int size, const WorldOptions& options,
                                                   const std::shared_ptr<Store>& store,
                                                   const std::shared_ptr<InprocHub>& hub) {
  absl::StatusOr<std::unique_ptr<Transport>> made = MakeTransport(options, hub, rank);
  if (!made.ok()) return made.status();
  std::unique_ptr<Transport> transport = *std::move(made);
  if (options.wrap != nullptr) transport = options.wrap(rank, std::move(transport));
  Bootstrap bootstrap;
  bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
  bootstrap.identity.size = bootstrap.identity.local_size = size;
  bootstrap.store = store;
  CommunicatorOptions mine = options.communicator;
  if (options.on_devices) mine.cuda_device = options.on_one_device ? 0 : options.first_device + rank;
  return Communicator::Create(bootstrap, std::move(transport), mine);
}

void RunIfJoined(const absl::StatusOr<std::unique_ptr<Communicator>>& joined, Rank rank, const WorldOptions& options,
                 const std::function<void(Communicator&)>& body) {
  if (!joined.ok() && options.cannot_join != nullptr) return options.cannot_join(rank, joined.status());
  ASSERT_TRUE(joined.ok()) << joined.status();
  body(**joined);
}

}  // namespace

std::vector<std::string> WorldTransports() {
#ifdef TUTTI_WITH_UCX
  return {"inproc", "ucx"};
#else
  return {"inproc"};
#endif
}

void RunWorld(int size, const WorldOptions& options, const std::function<void(Communicator&)>& body) {
  // Nodes in one process have no network between them to measure, and tests count messages.
  ::setenv("TUTTI_MEASURE_LINKS", "0", /*overwrite=*/0);
  if (options.on_devices) UseFakeDevices();
  const std::shared_ptr<Store> store = MakeMemoryStore();
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(size, options.ranks_per_node);
  std::vector<std::thread> ranks;
  ranks.reserve(size);
  for (Rank rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const absl::StatusOr<std::unique_ptr<Communicator>> joined = Join(rank, size, options, store, hub);
      RunIfJoined(joined, rank, options, body);
      if (options.barrier != nullptr) options.barrier->Leave();
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

void RunWorldWithLittleTime(int size, const WorldOptions& options,
                            const std::function<void(Communicator&, RankBarrier&)>& body) {
  constexpr int kAttempts = 6;
  WorldOptions world = options;
  for (int attempt = 1;; ++attempt, *world.communicator.timeout *= 2) {
    RankBarrier barrier(size);
    world.barrier = &barrier;
    world.cannot_join = [&](Rank, const absl::Status& status) { barrier.Tell(status); };
    RunWorld(size, world, [&](Communicator& comm) { body(comm, barrier); });
    const absl::Status error = barrier.error();
    if (error.ok()) return;
    ASSERT_TRUE(absl::IsDeadlineExceeded(error) && attempt < kAttempts) << error;
  }
}

std::vector<Buffer> TakeFreeMemory(Communicator& world) {
  std::vector<Buffer> taken;
  for (std::int64_t bytes = std::int64_t{1} << 30; bytes > 0;) {
    absl::StatusOr<Buffer> more = world.Allocate(bytes);
    if (more.ok()) {
      taken.push_back(*std::move(more));
    } else {
      bytes /= 2;
    }
  }
  return taken;
}

}  // namespace tutti
