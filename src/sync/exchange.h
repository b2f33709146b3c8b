// What a synchronizer does in a step. The record of its algorithm says which kinds of values ranks exchange, and when;
// each such kind has one implementation.
#ifndef TUTTI_SYNC_EXCHANGE_H_
#define TUTTI_SYNC_EXCHANGE_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "sync/buckets.h"
#include "sync/caller.h"
#include "sync/exchange_bucket.h"
#include "sync/sync_context.h"
#include "tutti/synchronizer.h"

namespace tutti {

// The functions have the names and the contracts of Synchronizer's functions, and are called on the synchronizer's one
// thread. A function that does not concern a kind of exchange does nothing there.
class Exchange {
 public:
  // `context` must outlive the result.
  explicit Exchange(SyncContext& context) : context_(context) {}
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual bool exchanges_gradients() const { return false; }
  virtual bool steps_together() const { return true; }

  // Functions for gradients, called while backward runs; MarkReady may be called by any thread.
  virtual std::shared_ptr<void> GradientView(int /*i*/) const { return nullptr; }
  virtual absl::Status BeginBackward() { return absl::OkStatus(); }
  virtual void MarkReady(int /*i*/, void* /*stream*/) {}
  virtual std::vector<int> MissingGradients() const { return {}; }
  virtual absl::Status FinishBackward() { return absl::OkStatus(); }
  virtual bool used(int /*i*/) const { return true; }
  virtual absl::Status CancelBackward() { return absl::OkStatus(); }
  virtual void ZeroGradients() {}
  virtual absl::Status SetLossScale(double scale) = 0;

  // Functions for weights, called around the optimizer's step.
  virtual absl::Status BeginForward() { return absl::OkStatus(); }
  virtual absl::Status BeforeStep() = 0;
  virtual absl::Status AfterStep() = 0;
  virtual absl::Status Flush() = 0;
  virtual absl::Status Restart() { return absl::OkStatus(); }

  // Functions for the rounds in the background.
  virtual void Pause() {}
  virtual void Resume() {}
  virtual void Stop() {}

  // The buckets with states that a checkpoint saves, in the form in which the next step begins with them. Waits until
  // the last exchange has ended.
  virtual absl::StatusOr<absl::Span<ExchangeBucket>> BucketsToSave() = 0;
  // The buckets of BucketsToSave, to be filled with loaded states: how the last exchange has ended does not matter
  // then. A round that has begun in the background is dropped, because its snapshot holds the old weights.
  virtual absl::Span<ExchangeBucket> BucketsToLoad() = 0;
  // Called after the states of the buckets and the step of the context were loaded. `same_world`, equal on all ranks:
  // replicas were loaded too. Collective.
  virtual absl::Status EndLoad(bool /*same_world*/) { return absl::OkStatus(); }

  // The options of a call that is made now for `purpose`; its input is what is on the stream of the memory now.
  CallOptions Call(Purpose purpose, const CallOptions& options = {}) const {
    const bool counted_alike = steps_together() && purpose != Purpose::kState;
    CallOptions call = options;
    if (purpose != Purpose::kUser) call.stream = context_.memory->stream();
    return context_.caller.Sign(purpose, counted_alike ? context_.round : 0, call);
  }

 protected:
  SyncContext& context_;
};

// Makes the exchange of the strategy of `context`, which must outlive the result. Collective: an error of one rank's
// memory is an error on all ranks.
absl::StatusOr<std::unique_ptr<Exchange>> MakeExchange(SyncContext& context, const Layout& layout,
                                                       const SynchronizerOptions& options);

}  // namespace tutti

#endif  // TUTTI_SYNC_EXCHANGE_H_
