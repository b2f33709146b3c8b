// Keeps the replicas of one model in step: the torch-free heart of every adapter.
#ifndef TUTTI_SYNCHRONIZER_H_
#define TUTTI_SYNCHRONIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/agreement.h"
#include "tutti/communicator.h"
#include "tutti/dtype.h"

namespace tutti {

// One tensor that is trained, in the order of its use in forward.
struct Parameter {
  std::string name;
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  std::string shape;       // "64x3x3x3", or anything else that must be equal on all ranks
  // The tensor itself, `count` elements without gaps. Only strategies that exchange weights need it, and touch it only
  // in BeginForward, BeforeStep, AfterStep and Flush. Must outlive the synchronizer.
  void* weights = nullptr;
};

struct SynchronizerOptions {
  // "gradient_allreduce", "bytegrad:codec=minmax_uint8", …
  std::string strategy = "gradient_allreduce";
  // A bucket is closed before it would grow beyond this; the first one (last layers) is small, so that communication
  // starts early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
  // Parameters that get no gradient in a step contribute what their view holds (zero, unless gradients were
  // accumulated there before); when false, they are an error that names them.
  bool allow_unused = false;
};

// What a rank has exchanged since the last call of TakeStatistics.
struct SyncStatistics {
  std::int64_t steps = 0;
  std::int64_t wire_bytes = 0;
  std::int64_t payload_bytes = 0;  // size of what was synchronized, before compression
  absl::Duration exposed;          // time the training thread waited for communication
  absl::Duration communication;    // sum over buckets, from launch to end
  // Share of communication hidden behind backward: 1 - exposed / communication (0 when there was none).
  double hidden() const;
};

// Memory that belongs to a model: weights, or the state of an optimizer.
struct StateMemory {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// What the ranks exchange instead of gradients: the optimizer of a strategy that exchanges momentum (tutti/qadam.h).
class MomentumSource {
 public:
  virtual ~MomentumSource() = default;
  // A backward that synchronizes begins. Which of the strategy's rounds it is (Algorithm::rounds): equal on all ranks.
  virtual absl::StatusOr<int> BeginBackward() = 0;
  // Gradient `i` is complete and leaves next: puts what is exchanged into GradientView(i). Once per backward; called by
  // any thread, for different parameters at the same time.
  virtual void ReplaceGradient(int i) = 0;
};

// One step, per rank, on one thread (the hooks of an adapter may run on autograd's):
//
//   sync.BeginForward();                 // weights may travel from here on: they must not change
//   … forward …
//   sync.BeginBackward();
//   … write gradient i into GradientView(i) (accumulating, as autograd does), then sync.MarkReady(i), in any order …
//   status = sync.FinishBackward();      // gradients in the views are now the synchronized ones
//   status = sync.BeforeStep();          // weights may now be a mix of those of several ranks
//   … the optimizer changes the weights …
//   status = sync.AfterStep();           // weights may be changed once more, by what peers have learnt
//
// A strategy that exchanges gradients needs only the calls from BeginBackward to FinishBackward, one that exchanges
// weights only the others; making all of them is right for every strategy. The step counter moves in FinishBackward or
// AfterStep accordingly.
//
// Buckets are filled in reverse order of the parameters and launched in index order while backward still runs.
// All ranks must have equal parameters and options: checked once at creation, with an error on every rank that names
// the rank and the field that differ.
class Synchronizer {
 public:
  // Collective. `communicator` must outlive the result. InvalidArgument names the option that is wrong or the rank and
  // field that differ; Unimplemented says what the strategy cannot do.
  static absl::StatusOr<std::unique_ptr<Synchronizer>> Create(Communicator& communicator,
                                                              std::vector<Parameter> parameters,
                                                              const SynchronizerOptions& options);
  ~Synchronizer();
  Synchronizer(const Synchronizer&) = delete;
  Synchronizer& operator=(const Synchronizer&) = delete;

  int bucket_count() const;
  const std::vector<Parameter>& parameters() const;
  const std::string& strategy() const;  // full form, every option
  // Steps completed, from 0; those before the state was saved included.
  std::int64_t step() const;
  // Whether the next step exchanges gradients, and whether the strategy exchanges weights: `async` does both in turn.
  bool exchanges_gradients() const;
  bool exchanges_weights() const;
  // Whether all ranks make the next step together; not while `async` averages in the background: each rank then has a
  // pace, and perhaps an end, of its own, and may call nothing collective in a step.
  bool steps_together() const;

  // Memory of gradient `i`, in its bucket; zero at first. It stays valid while anyone holds it, also after the
  // synchronizer is gone.
  std::shared_ptr<void> GradientView(int i) const;

  // The forward of a step begins; further calls within the step mean nothing.
  absl::Status BeginForward();
  // Who makes momentum of gradients, for strategies that exchange it; null: nobody any more. Between steps only.
  // `source` must outlive its use.
  void set_momentum_source(MomentumSource* source);
  MomentumSource* momentum_source() const;

  // A backward begins. FailedPrecondition when the last one was not finished, or when the strategy exchanges momentum
  // and there is no source of it.
  absl::Status BeginBackward();
  // Gradient `i` is complete. Lock-free; launches the buckets that are full and next in order. Any thread.
  // A second call for the same parameter in one step is an error that FinishBackward returns.
  void MarkReady(int i);
  // The parameters that are not marked ready in this step.
  std::vector<int> MissingGradients() const;
  // Waits until every bucket is synchronized. InvalidArgument names the parameters whose gradient is missing (unless
  // allow_unused) or was marked twice, and is told to the peers, whose step ends with Aborted; the sticky error of the
  // communicator otherwise.
  absl::Status FinishBackward();

  // Before and after the optimizer. Errors: the sticky one of the communicator.
  absl::Status BeforeStep();
  absl::Status AfterStep();

  // Gives all ranks the average of their weights, before an evaluation or a checkpoint; does nothing when the strategy
  // keeps replicas equal. Between steps only. Collective.
  absl::Status Flush();
  // Forgets what was exchanged or learnt of the weights so far, after they were given other values that are equal on
  // all ranks: replicas begin anew from these. Between steps only. All ranks must call it.
  absl::Status Restart();
  // For `async`: stops taking part in rounds (of all ranks: a round needs all), and begins again. Neither waits. Any
  // number of times; no effect with other strategies.
  void Pause();
  void Resume();
  // For `async`: ends the rounds for good, of all ranks, who train on by themselves; one rank is enough. Waits for a
  // round that is under way and for at most one interval more. Flush still averages. Safe to call again; no effect with
  // other strategies.
  void Stop();

  // Whether any rank says true, told to all: a scaler that met an overflow must skip the step on every rank, or the
  // replicas and the scales drift apart. Strategies that exchange gradients show a NaN or infinity of one rank to all
  // of them anyway. Collective while steps_together(); else the answer is this rank's own.
  absl::StatusOr<bool> AgreeOnOverflow(bool mine);

  // Everything that later steps depend on beside weights and gradients: step counter, residuals, replicas. The same
  // bytes make an interrupted training go on bit for bit. Waits until the last exchange has ended; empty, which
  // LoadState refuses, if it failed: the next step says why. Between steps only.
  std::string SaveState() const;
  // Takes what SaveState of the same strategy and parameters returned: on this rank when the world has the size it had;
  // otherwise the states of all ranks of that world, in rank order, from which residuals are shared out so that their
  // sum over the ranks is kept (but for buckets that are not encoded in this world), and replicas begin anew from the
  // present weights. Of `async`, whose ranks have steps of their own, they then begin with the least. Between steps
  // only. Collective: InvalidArgument, on every rank, names what does not fit, or the rank and the step that differ;
  // nothing is changed then, but that a round of `async` is dropped.
  absl::Status LoadState(absl::Span<const std::string> states);

  // While false, steps only accumulate locally (no_sync). Takes effect with the next BeginBackward.
  void set_synchronize(bool synchronize);
  bool synchronize() const;

  // Sets all gradients to zero.
  void ZeroGradients();

  // For what the users of a synchronizer must have in common: see agreement.h. Collective.
  absl::Status Agree(const AgreementFields& fields, const absl::Status& mistake = absl::OkStatus());

  // Overwrites `memory` on every rank with rank 0's, then checks that all are equal. Collective; the ranges have equal
  // sizes on all ranks, else InvalidArgument names the rank and the range.
  absl::Status BroadcastState(absl::Span<const StateMemory> memory);
  // OK when `memory` holds the same bytes on all ranks; DataLoss names a rank and a range that differ. Collective.
  absl::Status CheckState(absl::Span<const StateMemory> memory);

  SyncStatistics TakeStatistics();

 private:
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

#endif  // TUTTI_SYNCHRONIZER_H_
