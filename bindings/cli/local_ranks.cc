#include "bindings/cli/local_ranks.h"

#include <cstddef>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti::cli {
namespace {

absl::StatusOr<std::unique_ptr<Communicator>> Join(const Bootstrap& bootstrap, const std::shared_ptr<InprocHub>& hub,
                                                   const TransportOptions& region, const CommunicatorOptions& options) {
  if (hub == nullptr) return Communicator::Create(bootstrap, options);
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeInprocTransport(hub, region);
  if (!transport.ok()) return transport.status();
  return Communicator::Create(bootstrap, *std::move(transport), options);
}

// How far an error may be from its cause: a rank that returns an error leaves, so that calls of its peers are
// Unavailable, and calls that those peers then abort are Aborted.
int DistanceFromCause(const absl::Status& error) {
  if (absl::IsAborted(error)) return 2;
  return absl::IsUnavailable(error) ? 1 : 0;
}

}  // namespace

absl::Status RunLocalRanks(int ranks, absl::string_view transport,
                           const std::function<CommunicatorOptions(Rank)>& options_of,
                           const std::function<absl::Status(Communicator&)>& body, int ranks_per_node) {
  const absl::StatusOr<Config> config = ParseConfig(ProcessEnvironment());
  if (!config.ok()) return config.status();
  // Communicator::Create reads TUTTI_ARENA_BYTES only for a transport of its own making.
  const TransportOptions region{.region_bytes = config->arena_bytes};
  const std::shared_ptr<InprocHub> hub = transport == "inproc" ? MakeInprocHub(ranks, ranks_per_node) : nullptr;
  const std::shared_ptr<Store> store = MakeMemoryStore();
  std::vector<absl::Status> results(static_cast<std::size_t>(ranks));
  absl::Status first;
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  // The ranks begin when all have their threads: a few ranks alone would wait for the others.
  std::promise<bool> all_started;
  const std::shared_future<bool> may_begin = all_started.get_future().share();
  for (Rank rank = 0; rank < ranks; ++rank) {
    const auto run = [&, rank] {
      if (!may_begin.get()) return;
      const Identity identity{.rank = rank,
                              .size = ranks,
                              .local_rank = rank,
                              .local_size = ranks,
                              .job_id = "threads",
                              .launcher = "single"};
      const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
          Join({identity, store}, hub, region, options_of(rank));
      results[static_cast<std::size_t>(rank)] = communicator.ok() ? body(**communicator) : communicator.status();
    };
    try {
      threads.emplace_back(run);
    } catch (const std::system_error& error) {
      first = absl::ResourceExhaustedError(absl::StrCat("cannot start a thread for rank ", rank, " of ", ranks, ": ",
                                                        error.what(), "; start fewer ranks, or raise ulimit -u"));
      break;
    }
  }
  all_started.set_value(first.ok());
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) {
    if (!result.ok() && (first.ok() || DistanceFromCause(result) < DistanceFromCause(first))) first = result;
  }
  return first;
}

}  // namespace tutti::cli
