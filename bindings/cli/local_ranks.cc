#include "bindings/cli/local_ranks.h"

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::cli {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> Join(const Bootstrap& bootstrap, const std::shared_ptr<InprocHub>& hub,
                                                   const CommunicatorOptions& options) {
  if (hub == nullptr) return Communicator::Create(bootstrap, options);
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeInprocTransport(hub, {});
  if (!transport.ok()) return transport.status();
  return Communicator::Create(bootstrap, *std::move(transport), options);
}

}  // namespace

absl::Status RunLocalRanks(int ranks, absl::string_view transport, const CommunicatorOptions& options,
                           const std::function<absl::Status(Communicator&)>& body) {
  const std::shared_ptr<InprocHub> hub = transport == "inproc" ? MakeInprocHub(ranks) : nullptr;
  const std::shared_ptr<Store> store = MakeMemoryStore();
  std::vector<absl::Status> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (Rank rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Identity identity{.rank = rank,
                              .size = ranks,
                              .local_rank = rank,
                              .local_size = ranks,
                              .job_id = "threads",
                              .launcher = "single"};
      const absl::StatusOr<std::unique_ptr<Communicator>> communicator = Join({identity, store}, hub, options);
      results[static_cast<std::size_t>(rank)] = communicator.ok() ? body(**communicator) : communicator.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  for (const absl::Status& result : results) {
    if (!result.ok() && (first.ok() || absl::IsAborted(first))) first = result;
  }
  return first;
}

}  // namespace tutti::cli
