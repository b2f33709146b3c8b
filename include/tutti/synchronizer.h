// Synchronizer, which keeps the replicas of one model in step. The adapters to frameworks are built on this class,
// which knows no framework itself.
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
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/dtype.h"
#include "tutti/tuning.h"

namespace tutti {

// One tensor that is trained. Parameters are listed in the order in which forward uses them.
struct Parameter {
  std::string name;
  DType dtype = DType::kF32;
  std::int64_t count = 0;  // elements
  std::string shape;       // "64x3x3x3", or anything else that must be equal on all ranks
  // The tensor itself, `count` elements without gaps. Only strategies that exchange weights need the pointer, and touch
  // the tensor only in BeginForward, BeforeStep, AfterStep, Flush and LoadState. Memory of SynchronizerOptions::memory;
  // must outlive the synchronizer. Tensors of two parameters have no byte in common: tied weights are one parameter.
  void* weights = nullptr;
};

struct SynchronizerOptions {
  // "gradient_allreduce", "bytegrad:codec=minmax_uint8", …
  std::string strategy = "gradient_allreduce";
  // A bucket is closed when the next parameter would make it larger than this many bytes. The first bucket (last
  // layers) is small, so that communication starts early.
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t first_bucket_bytes = 1 << 20;
  // Parameters that get no gradient in a step are allowed. Such parameters contribute what their view holds (zero,
  // unless gradients were accumulated there before), and the ranks agree on which parameters no rank has used: see
  // Synchronizer::used. When false, such parameters are an error that names them.
  bool allow_unused = false;
  // Backwards that exchange gradients try in the beginning which bucket sizes, schedule and hierarchy are fastest, and
  // keep the best (docs/autotuning.md). Each BeginBackward may then give gradients other memory: see moves().
  bool autotune = false;
  // Where gradients, snapshots and states lie, and weights must. kDevice: memory of the communicator's GPU (see
  // Synchronizer::SetStream). Autotuning has nothing to tune there.
  MemoryKind memory = MemoryKind::kHost;
};

// What a rank has exchanged since the last call of TakeStatistics.
struct SyncStatistics {
  std::int64_t steps = 0;
  std::int64_t wire_bytes = 0;
  std::int64_t payload_bytes = 0;  // bytes of the elements that were synchronized, uncompressed
  absl::Duration exposed;  // time the training thread waited for communication; on a GPU, not that of the stream
  // The sum over buckets, from launch to end (on a GPU, of the buckets of ended steps), and the waits of Flush, which
  // nothing hides.
  absl::Duration communication;
  // What the exchange took of a processor beside the training thread: the processor time of the engine's thread
  // (Counters::engine_cpu), whatever made it work, and of the thread of `async` that averages in the background; and
  // the part that the engine's thread spent on waiting for peers (Counters::engine_waiting).
  absl::Duration engine_cpu;
  absl::Duration engine_waiting;
  // Share of communication hidden behind backward: 1 - exposed / communication (0 when there was none).
  double hidden() const;
};

// Memory that belongs to a model: weights, or the state of an optimizer.
struct StateMemory {
  void* data = nullptr;
  std::int64_t bytes = 0;
  std::string name = {};  // the range's name in errors; empty: errors number it
};

// A source of momentum, which the ranks then exchange instead of gradients: the optimizer of a strategy that exchanges
// momentum (tutti/qadam.h).
class MomentumSource {
 public:
  virtual ~MomentumSource() = default;
  // A backward that synchronizes begins. Returns the round of the strategy that it runs (Algorithm::rounds), equal on
  // all ranks.
  virtual absl::StatusOr<int> BeginBackward() = 0;
  // Gradient `i` is complete and leaves next: writes what the ranks exchange for it into GradientView(i), on a GPU in
  // the order of `stream`, a cudaStream_t. Called once per backward and gradient, by any thread, for different
  // gradients at the same time.
  virtual void ReplaceGradient(int i, void* stream) = 0;
};

// The calls of one step, on every rank, from one thread (hooks of an adapter may run on autograd's threads):
//
//   sync.BeginForward();                 // weights may travel from here on: they must not change
//   … forward …
//   sync.BeginBackward();
//   … write gradient i into GradientView(i), unless that is null (accumulating, as autograd does), then
//     sync.MarkReady(i), in any order …
//   status = sync.FinishBackward();      // gradients in the views are now the synchronized ones
//   status = sync.BeforeStep();          // weights may now be a mix of those of several ranks
//   … the optimizer changes the weights …
//   status = sync.AfterStep();           // weights may be changed once more, by what peers have learnt
//
// A strategy that exchanges gradients needs only the calls from BeginBackward to FinishBackward, one that exchanges
// weights only the other calls; making all of them is right for every strategy. Gradients have views only with
// strategies that exchange gradients or momentum in some step: with the others they stay where they are. The step
// counter moves in FinishBackward with strategies that exchange gradients or momentum, and in AfterStep with all others
// (`async` among them, also in its warm-up).
//
// Buckets are filled in reverse order of the parameters and launched in index order while backward still runs.
//
// With SynchronizerOptions::memory on a GPU the calls enqueue their work and return: what follows on the stream finds
// the synchronized gradients, or the changed weights. Results that are late are not errors; a result that fails later
// ends the step with undefined values, and the next BeginForward, BeginBackward or BeforeStep returns the error. A rank
// is at most one step ahead of its GPU: BeginBackward and the launch of the next weights wait until the exchanges of
// the step before have ended. Flush, SaveState, LoadState, BroadcastState and CheckState wait for the GPU, and so does
// FinishBackward with allow_unused.
//
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

  // The number of this synchronizer: equal on all ranks, and above the numbers of all synchronizers and buckets (of a
  // BucketExchange) that any of these ranks made before. Errors about calls that do not match name the synchronizer by
  // this number.
  std::uint32_t number() const;
  // `options` with this synchronizer as owner and, where all ranks step together, this step as round; for calls that
  // its user makes on the communicator. Ranks whose collectives meet in different steps, or for different
  // synchronizers, then get an error instead of each other's values (CallOptions::owner).
  CallOptions OwnCall(const CallOptions& options = {}) const;

  int bucket_count() const;
  const std::vector<Parameter>& parameters() const;
  const std::string& strategy() const;  // the strategy name with all options
  // The number of completed steps; steps before the state was saved count too.
  std::int64_t step() const;
  // Whether the next step exchanges gradients, and whether the strategy exchanges weights: `async` does both in turn.
  bool exchanges_gradients() const;
  bool exchanges_weights() const;
  // Whether all ranks make the next step together. Not while `async` averages in the background: each rank then has its
  // own pace, may end before others, and may call nothing collective in a step.
  bool steps_together() const;

  // Memory of gradient `i`, in its bucket; zero at first. The memory stays valid while anyone holds the pointer, also
  // after the synchronizer is gone. Null with a strategy that exchanges weights (but `async` with a warm-up), in a
  // bucket without elements, and where there is no parameter `i`.
  std::shared_ptr<void> GradientView(int i) const;
  // How often gradients were given other memory, with the values they had: by BeginBackward, with autotune. Whoever
  // keeps views compares the number after each BeginBackward, and takes new views when it has changed.
  std::int64_t moves() const;
  // What autotuning has tried and chosen.
  const TuningReport& tuning() const;

  // Names the stream (a cudaStream_t) on which the caller computes with weights and gradients of a GPU from now on; the
  // default stream at first. The new stream waits for what the synchronizer has enqueued on the former one, which must
  // still live. No effect in memory of the host.
  void SetStream(void* stream);

  // Begins the forward of a step; further calls within the step have no effect.
  absl::Status BeginForward();
  // Sets what makes momentum of gradients, for strategies that exchange momentum; null removes it. Between steps only.
  // `source` must outlive its use.
  void set_momentum_source(MomentumSource* source);
  MomentumSource* momentum_source() const;

  // Begins a backward; to be called before anything is added to a view. Values that views still hold from the last
  // exchange count once in the next one: a strategy that adds gradients up (average=false) sets them to zero on all
  // ranks but 0, since all ranks hold the same sums. FailedPrecondition when the last backward was not finished, or
  // when the strategy exchanges momentum and has no source of it.
  absl::Status BeginBackward();
  // Marks gradient `i` as complete. Lock-free; launches the buckets that are full and next in order. Any thread.
  // A second call for the same parameter in one step is an error that FinishBackward returns, as is a call where there
  // is no parameter `i`. The second form names the stream on which a gradient of a GPU is computed, where that is not
  // the one of SetStream; the stream must live until FinishBackward, and add to the view after what was on the stream
  // of SetStream when BeginBackward returned. The stream is not cudaStreamPerThread, which another thread would take
  // for that thread's own. Outside of a backward a mark has no effect.
  void MarkReady(int i);
  void MarkReady(int i, void* stream);
  // The parameters that are not marked ready in this step; those without elements need no mark, and are always used.
  std::vector<int> MissingGradients() const;
  // Waits until every bucket is synchronized. InvalidArgument names the parameters whose gradient is missing (unless
  // allow_unused) or was marked twice, or a mark that is no parameter's; the peers are told, and their step ends with
  // Aborted, or their next call, if their buckets had all been exchanged before. Any other error is the sticky error of
  // the communicator, or ResourceExhausted on all ranks.
  absl::Status FinishBackward();
  // Whether some rank had marked parameter `i` ready when it finished the last backward that synchronized; equal on all
  // ranks. An optimizer should leave alone a parameter that no rank has used. Always true without allow_unused; false
  // where there is no parameter `i`.
  bool used(int i) const;
  // Gives up a backward that was begun and cannot be finished, so that a new one can begin. Waits for the buckets that
  // have left, and sets their gradients to zero, since their results are meaningless; the other gradients must be
  // zeroed or written anew, before or after the call. All ranks must have sent equally many buckets before they give
  // up. No effect when no backward is under way.
  absl::Status CancelBackward();

  // The calls before and after the optimizer. Errors are the sticky error of the communicator, or ResourceExhausted on
  // all ranks.
  absl::Status BeforeStep();
  absl::Status AfterStep();

  // Gives all ranks the average of their weights, before an evaluation or a checkpoint; does nothing when the strategy
  // keeps replicas equal. Between steps only. Collective. After the warm-up of `async`, unless Stop was called, a rank
  // waits here for ranks that make steps, however long; DeadlineExceeded, on all ranks, names one that has made none
  // for the timeout of the communicator while others waited.
  absl::Status Flush();
  // Starts replicas anew from the present weights, after the weights were given other values that are equal on all
  // ranks: forgets what was exchanged or learnt of the old weights. Between steps only. All ranks must call it; with
  // `async` they meet after it (BroadcastState, Agree) before a step of any of them, whose round would average a rank's
  // old weights, too.
  absl::Status Restart();
  // Pauses and resumes the rounds of `async`. A round needs all ranks, so a pause on one rank stops the rounds of all.
  // Neither call waits. Any number of times; no effect with other strategies.
  void Pause();
  void Resume();
  // Ends the rounds of `async` for good, on all ranks, which then train on by themselves; a call on one rank is enough.
  // Waits for a round that is under way and for at most one interval more. Flush still averages. Safe to call again; no
  // effect with other strategies.
  void Stop();

  // Whether `mine` is true on any rank: a scaler that met an overflow must skip the step on every rank, or the replicas
  // and the scales drift apart. Strategies that exchange gradients show a NaN or infinity of one rank to all of them
  // anyway. Collective while steps_together(); otherwise returns `mine`.
  absl::StatusOr<bool> AgreeOnOverflow(bool mine);

  // Declares that the losses of all backwards from here on are multiplied by `scale`, which is 1 at first. Gradients
  // that a codec holds back for later steps (error_feedback=true) are multiplied by the new scale over the last one. To
  // be called before the backward of each step, or where the scale changes: between steps only. Collective when `scale`
  // is another than the last one: InvalidArgument, on every rank, names the rank whose scale differs or is no finite
  // number above 0, or that is in a step (FailedPrecondition where all are), or says that the strategy takes no scale
  // (`qadam`); nothing is changed then. Once gradients of its step travel, a rank gets FailedPrecondition at once and
  // takes no part. All ranks must change the scale together: a rank that passes the last scale again takes no part, so
  // the calls of the ranks do not match. With strategies that exchange weights, gradients stay on their rank: the call
  // is not collective there, and checks `scale` alone.
  absl::Status SetLossScale(double scale);
  double loss_scale() const;

  // Everything that later steps depend on beside weights and gradients: the step counter, residuals and their loss
  // scale, replicas. An interrupted training that loads the same bytes and uses the same schedules (docs/selection.md)
  // goes on bit for bit. Waits for the end of the last exchange; if that exchange or a Flush failed, or the
  // communicator before replicas started anew, the result is empty, which LoadState refuses. Between steps only.
  std::string SaveState() const;
  // Loads what SaveState of the same strategy and parameters returned on all ranks of the old world, in rank order. In
  // a world of the same size and nodes a rank takes its own state, which may also be given alone; where a strategy has
  // neither residuals nor replicas, that of any one rank will do in every world. In another world each takes its share
  // of the residuals, so that the results still get what was held back (except in buckets that are not encoded in this
  // world). Residuals of values that are averaged are scaled with the number of ranks; residuals of a sum are not.
  // Replicas then start anew from equal weights: a strategy that exchanges differences of weights gives all ranks the
  // average of the present weights, as Flush does, so weights must be loaded before. The loss scale is that of the
  // states. For `async`, whose ranks count steps separately, training goes on from the least step. Between steps only.
  // Collective: InvalidArgument, on every rank, names what does not fit, or the rank and the step that differ; then
  // nothing is changed, but a round of `async` under way is dropped. Other errors are those of Flush.
  absl::Status LoadState(absl::Span<const std::string> states);

  // While `synchronize` is false, steps only add gradients up on their own rank (torch's no_sync). Takes effect with
  // the next BeginBackward.
  void set_synchronize(bool synchronize);
  bool synchronize() const;

  // Sets all gradients to zero.
  void ZeroGradients();

  // Compares fields that the users of this synchronizer must have in common in a call of theirs, which `name` names:
  // see Agree in agreement.h. Collective.
  absl::Status Agree(absl::string_view name, const AgreementFields& fields,
                     const absl::Status& mistake = absl::OkStatus());

  // Overwrites `memory` on every rank with rank 0's, then checks that all are equal. Collective; the ranges have equal
  // sizes on all ranks, else InvalidArgument, on every rank, names the rank and the range, as it does for a range
  // without memory or with less than 0 bytes: nothing is read or written then.
  absl::Status BroadcastState(absl::Span<const StateMemory> memory);
  // OK when `memory` holds the same bytes on all ranks; DataLoss names a rank and a range that differ.
  // FailedPrecondition in place of DataLoss when the strategy exchanges weights and no Flush came after the last step,
  // or after a state was loaded that was saved after a step: replicas then differ by design. InvalidArgument: see
  // BroadcastState. Collective.
  absl::Status CheckState(absl::Span<const StateMemory> memory);

  SyncStatistics TakeStatistics();

 private:
  friend class QAdam;  // which works in the memory of its synchronizer
  class Impl;
  explicit Synchronizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

#endif  // TUTTI_SYNCHRONIZER_H_
