#include "tests/harness/world.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(const WorldOptions& options,
                                                         const std::shared_ptr<InprocHub>& hub) {
  const TransportOptions transport = {.region_bytes = options.region_bytes};
#ifdef TUTTI_WITH_UCX
  if (options.transport == "ucx") return MakeUcxTransport({}, transport);
#endif
  return MakeInprocTransport(hub, transport);
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
  const std::shared_ptr<Store> store = MakeMemoryStore();
  const std::shared_ptr<InprocHub> hub = MakeInprocHub(size);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      absl::StatusOr<std::unique_ptr<Transport>> transport = MakeTransport(options, hub);
      ASSERT_TRUE(transport.ok()) << transport.status();
      Bootstrap bootstrap;
      bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
      bootstrap.identity.size = bootstrap.identity.local_size = size;
      bootstrap.store = store;
      absl::StatusOr<std::unique_ptr<Communicator>> communicator =
          Communicator::Create(bootstrap, *std::move(transport), options.communicator);
      ASSERT_TRUE(communicator.ok()) << communicator.status();
      body(**communicator);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace tutti
