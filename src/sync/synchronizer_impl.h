// The state of a synchronizer between the calls of a step, and the functions that every kind of exchange shares.
#ifndef TUTTI_SYNC_SYNCHRONIZER_IMPL_H_
#define TUTTI_SYNC_SYNCHRONIZER_IMPL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/fork.h"
#include "sync/buckets.h"
#include "sync/caller.h"
#include "sync/checkpoint.h"
#include "sync/exchange.h"
#include "sync/sync_context.h"
#include "tutti/algorithm.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// The functions carry out those of Synchronizer (Save: SaveState; Load: LoadState), on the synchronizer's one thread.
class Synchronizer::Impl {
 public:
  Impl(Communicator& communicator, std::unique_ptr<BucketMemory> memory, const Caller& caller,
       std::vector<Parameter> parameters, Strategy strategy, std::vector<Rank> participants)
      : context{.communicator = communicator,
                .memory = std::move(memory),
                .caller = caller,
                .parameters = std::move(parameters),
                .strategy = std::move(strategy),
                .participants = std::move(participants)},
        name(context.strategy.ToString()),
        taken_at_(context.communicator.counters()) {}

  // Makes the exchange. Called once, before everything else. Collective.
  absl::Status Make(const Layout& layout, const SynchronizerOptions& options);

  std::string Save();
  absl::Status Load(absl::Span<const std::string> states);
  absl::StatusOr<bool> AgreeOnOverflow(bool mine);
  SyncStatistics TakeStatistics();

  const MakerProcess maker;
  SyncContext context;
  const std::string name;  // the strategy name with all options
  std::unique_ptr<Exchange> exchange;

 private:
  CheckpointOwner Owner() const;

  Counters taken_at_;  // those of the communicator at the last TakeStatistics
};

}  // namespace tutti

#endif  // TUTTI_SYNC_SYNCHRONIZER_IMPL_H_
