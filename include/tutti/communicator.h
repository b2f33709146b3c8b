// A communicator: ranks that can run collectives together.
#ifndef TUTTI_COMMUNICATOR_H_
#define TUTTI_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/bootstrap.h"
#include "tutti/buffer.h"
#include "tutti/call_options.h"
#include "tutti/collective.h"
#include "tutti/native_transport.h"
#include "tutti/plan.h"
#include "tutti/schedule.h"
#include "tutti/transport.h"
#include "tutti/work.h"

namespace tutti {

// Options of a communicator, equal on all ranks except where a field says otherwise. An option that is not set here
// comes from the environment (docs/configuration.md).
struct CommunicatorOptions {
  // Every wait for a peer ends after this long, which is positive, with DeadlineExceeded that names the peer;
  // TUTTI_TIMEOUT. Ranks may have different timeouts.
  std::optional<absl::Duration> timeout = std::nullopt;
  // Schedules that calls use instead of the selector's choice, "all_reduce=ring,broadcast=binomial"; TUTTI_SCHEDULE. A
  // schedule that serves memory of one kind alone is for calls on such memory alone, and the selector decides for the
  // others: `native` is for the memory of GPUs, and one that maps peers, such as `direct`, for that of the host. A
  // schedule that serves neither here makes calls of its collective Unimplemented. What Tutti calls for itself (to make
  // groups, and in a Synchronizer, except Flush) does not use them: docs/selection.md.
  std::optional<std::string> schedules = std::nullopt;
  // Pipelining unit of message schedules, in bytes, at least kMinSegmentBytes; the largest integer: never cut.
  std::int64_t segment_bytes = 256 << 10;
  // kAuto maps the memory of the peers on this node, and sends messages to the others; kNever sends messages to all.
  enum class Mapping : std::uint8_t { kAuto, kNever } mapping = Mapping::kAuto;
  // The GPU of this rank, by its number in this process, on whose memory calls may then work as well as on the host's
  // (CallOptions::stream, Work::WaitOnStream). All ranks have one, or none has; ranks may have different numbers.
  std::optional<int> cuda_device = std::nullopt;
  // How calls on the memory of GPUs travel: "auto", "nccl" or "staged"; TUTTI_GPU_TRANSPORT.
  std::optional<std::string> gpu_transport = std::nullopt;
};

// The traffic of a rank since its first communicator was created, over that communicator and all that were split from
// it, and what it took of a processor.
struct Counters {
  std::int64_t calls = 0;
  std::int64_t wire_bytes = 0;  // messages sent, and reads and writes of mapped peer memory
  // Copied between the callers' buffers and the arena, for calls whose peers must reach memory that is not in the
  // arena; what peers copy from the arena straight into their own buffers is counted in wire_bytes alone. A schedule
  // that serves every buffer through scratch (`eager`, or `staged` where a call names it) adds nothing here.
  std::int64_t staged_bytes = 0;
  // The time of the engine's thread, which carries calls out while no thread waits for them: since it was started, and
  // how much of a processor it has used. What threads use that wait for calls is not counted here, nor what callbacks
  // do.
  absl::Duration engine_wall;
  absl::Duration engine_cpu;
  // The part of engine_cpu that went into waiting for peers: polls that found nothing, going to sleep and waking up.
  absl::Duration engine_waiting;
};

// The memory that a plan runs on. `in` is unused in place. `state` is persistent memory of plan.state_bytes. `scratch`,
// of plan.scratch_bytes, may be null; a plan whose peers do not map its memory uses it instead of allocating its own.
// Plans that never run at the same time may share one.
struct PlanBuffers {
  const void* in = nullptr;
  void* out = nullptr;
  void* state = nullptr;
  void* scratch = nullptr;
};

struct Strategy;

// A plan with its memory. A bound plan can be started any number of times, one run at a time, without allocation or
// look-up. Must not outlive its communicator. Not thread-safe; different bound plans are independent.
class BoundPlan {
 public:
  BoundPlan();
  ~BoundPlan();
  BoundPlan(BoundPlan&&) noexcept;
  BoundPlan& operator=(BoundPlan&&) noexcept;

  // Starts a run; every rank must start the same plans of a communicator in the same order.
  Work Start(const CallOptions& options = {});
  // Another handle to the run that was started last. Before the first Start, the handle of a call that has ended OK.
  Work LastRun() const;
  // Names other memory, of the same sizes, for the runs from here on; `scratch` stays what it was. FailedPrecondition
  // while a run is under way; InvalidArgument names a buffer that is missing, or says that input and output overlap, or
  // that the plan was bound to memory of another kind (of the host, or of a GPU).
  // ResourceExhausted when the arena has no room to stage the memory: the next run, which must be started all the same,
  // then ends with that error on all ranks, unless there is room by then.
  absl::Status Rebind(const PlanBuffers& buffers);
  // A plan without steps, where Communicator::Bind has not made this BoundPlan, or it was moved from.
  const Plan& plan() const;

 private:
  friend class Communicator;
  class Impl;
  explicit BoundPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Thread-safe: any thread may submit, but all ranks must submit their collectives in the same order. The arguments of
// the calls follow NCCL's: input, output, count (see CollectiveSpec), dtype, op or root. Equal input and output
// pointers mean in place, as does, where blocks are gathered or scattered, a pointer to this rank's own block. Memory
// from Allocate is used where it is; what peers are to read of any other memory is copied into the arena, stage by
// stage where the selector chooses the schedule, otherwise whole.
//
// The plan of a call is verified before its first run (docs/verification.md): FailedPrecondition, on every rank, when
// the plans of the schedule would not do what the collective promises.
//
// Errors: InvalidArgument names the argument; Unavailable names the dead rank; DeadlineExceeded names the rank, the
// call and the step that waited; Aborted carries the first cause. After the first error every pending and later call
// of this communicator ends with that error, on all its ranks; other communicators go on, also those over the same
// ranks, and recovery is a new Group of the ranks that live, for which the job's store must live, too (docs/errors.md).
// Only the errors of one call alone (docs/errors.md) leave the communicator usable.
class Communicator {
 public:
  // Collective over the ranks of `bootstrap`; takes the transport from the environment (TUTTI_TRANSPORT). A Bootstrap
  // is for one Create: after an error, or for another world, take another one (BootstrapFromEnvironment).
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Bootstrap& bootstrap,
                                                              const CommunicatorOptions& options = {});
  // Creates the communicator over `transport`, which is not connected yet, and not over one from the environment.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Bootstrap& bootstrap,
                                                              std::unique_ptr<Transport> transport,
                                                              const CommunicatorOptions& options = {});
  // Ends unfinished calls with Aborted, here and on the peers, and waits until no peer touches their memory any more:
  // no time where all calls have ended, otherwise mostly milliseconds. docs/errors.md, "How long the end takes", has
  // the cases that take longer.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Rank rank() const;
  int size() const;
  absl::string_view transport() const;
  // The options with which this communicator builds plans on memory of `kind`; they say whether peers' memory is
  // mapped.
  const PlanOptions& plan_options(MemoryKind kind = MemoryKind::kHost) const;
  // CommunicatorOptions::cuda_device; a split communicator has the same.
  std::optional<int> cuda_device() const;
  // How calls on the memory of GPUs travel in this world, and why: "nccl: …" or "staged: ranks 0 and 1 have one GPU,
  // …"; empty where the communicator has no GPU.
  std::string gpu_transport() const;
  Counters counters() const;
  // The store through which the ranks found each other, for agreements of the layers above. A split communicator has a
  // part of that store, which only its own ranks see.
  Store& store() const;
  absl::Duration timeout() const;

  // Allocates memory in the arena, or on the GPU; 0 bytes give a buffer without memory. InvalidArgument when `bytes` is
  // negative; ResourceExhausted when this rank's region, or the GPU, has no room; FailedPrecondition for memory of a
  // GPU where the communicator has none.
  absl::StatusOr<Buffer> Allocate(std::int64_t bytes, MemoryKind kind = MemoryKind::kHost);

  Work AllReduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, const CallOptions& = {});
  Work ReduceScatter(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, const CallOptions& = {});
  Work AllGather(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& = {});
  // In Broadcast, Gather and Scatter a rank that needs nothing from the others (the root; all but the root in Gather)
  // may end OK before the others have come: the call is no barrier.
  Work Broadcast(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work Reduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, Rank root,
              const CallOptions& = {});
  Work Gather(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work Scatter(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work AllToAll(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& = {});
  // `send_counts` and `recv_counts` hold an entry per rank; blocks are packed in rank order. What one rank sends to
  // another must be what the other receives: InvalidArgument otherwise, on at least one of the two.
  Work AllToAllV(const void* in, absl::Span<const std::int64_t> send_counts, void* out,
                 absl::Span<const std::int64_t> recv_counts, DType dtype, const CallOptions& = {});
  Work Barrier(const CallOptions& = {});
  // Point to point: one message of `count` elements (≥ 0) to rank `to`, which is received by a Recv from this rank, or
  // from kAnySource, with the same tag (CallOptions::tag) and the same number of bytes. Messages of one sender and one
  // tag are received in the order sent; of two receives that could take a message, the one that was posted first takes
  // it. Messages of different tags, and collectives, go on independently of each other. `to` and `from` may be this
  // rank itself. Threads that send to one rank with one tag at the same time do so in no certain order.
  //
  // A Send ends when `in` may be used again: up to 8 MiB perhaps before anybody receives them (docs/errors.md).
  // Work::source() tells who sent what a Recv has received. A Recv whose message has another length ends with
  // InvalidArgument that names both lengths, sender and tag. A Recv from kAnySource ends with the cause when any rank
  // of the communicator is lost, which may be the one it waits for, and with Unavailable when all others have left.
  //
  // On the memory of a GPU messages match by their order alone: tag must be 0, and `from` a certain rank. A Send or
  // Recv takes its turn among the calls on the GPU, may hold up all that follow until the peer makes its own, and
  // cannot be to this rank itself: see SendRecv.
  Work Send(const void* in, std::int64_t count, DType dtype, Rank to, const CallOptions& = {});
  Work Recv(void* out, std::int64_t count, DType dtype, Rank from, const CallOptions& = {});

  // Sends and receives on the memory of a GPU that travel at the same time, as NCCL's between ncclGroupStart and
  // ncclGroupEnd: one call, and one Work for all. Each of `calls` is a kSend or kRecv, with the peer as its root; order
  // matters only among the messages of one rank to one other. Each may meet a Send or Recv that the peer makes alone.
  // Two ranks that send to each other must do so by SendRecv (or AllToAllV), because calls on a GPU run one after the
  // other. What a rank sends to itself is copied. Unimplemented for communicators without a GPU: on memory of the host,
  // Sends and Recvs that are made one by one travel at the same time.
  Work SendRecv(absl::Span<const NativeCall> calls, const CallOptions& = {});

  // Makes the call that `spec` describes, of any collective.
  Work Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& = {});

  // The plan that serves a call on memory of `kind`, with `private_buffers` when peers cannot map the buffers of some
  // rank; and the reason why the plan's schedule was chosen.
  absl::StatusOr<Plan> PlanFor(const CollectiveSpec& spec, const CallOptions& = {}, bool private_buffers = false,
                               MemoryKind kind = MemoryKind::kHost) const;
  std::string Explain(const CollectiveSpec& spec) const;

  // Binds plans to memory that outlives the result; every rank must bind and start matching plans. InvalidArgument
  // names a buffer that is missing, says that input and output overlap, or, on every rank, names the rank whose plan
  // maps the memory of another node. ResourceExhausted, on this rank alone, when there is no memory for the plan: the
  // other ranks must not start theirs. On the memory of GPUs, Bind of a plan with native steps among some of the ranks
  // (hierarchical strategies) waits for these ranks to bind theirs, the first time that a plan names them: ranks then
  // bind in one order. An error of that wait ends the communicator.
  //
  // The plan of a call that is made again and again (MPI: a persistent collective), with the schedule of `options`.
  absl::StatusOr<BoundPlan> Bind(const CollectiveSpec& spec, const PlanBuffers& buffers,
                                 const CallOptions& options = {});
  // The plan for one round of a bucket of `count` elements: see BuildPlan in tutti/algorithm.h.
  absl::StatusOr<BoundPlan> Bind(const Strategy& strategy, DType dtype, std::int64_t count, int round,
                                 const PlanBuffers& buffers);
  // A plan that the caller's own function makes. First the plans of all ranks are made on this rank and verified
  // together, whatever the size of the plans and whatever TUTTI_VERIFY says.
  absl::StatusOr<BoundPlan> Bind(PlanOfRank plan_of, const PlanBuffers& buffers);

  // Makes one new communicator per color of the ranks that gave this color, ordered by (key, rank); a rank with a
  // negative color gets null. Collective. Threads may split different communicators at the same time.
  // ResourceExhausted, on all ranks, when one rank has no room in its arena, or is in 524,287 groups of its world; a
  // group counts until all its ranks have destroyed it.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key);

  // A new communicator of `members`, ranks of this one, which become ranks 0, 1, … in the order given. Collective over
  // the members alone: each of them calls Group with the same members and name, and other ranks need not know. Threads
  // may make groups at the same time; groups that are made at the same time differ in their members or their name.
  // After an error the name is not used again for these members. InvalidArgument names the member that is out of range
  // or named twice, or says that this rank is none; ResourceExhausted, on all members, as Split; Unavailable names a
  // member that has died or left; DeadlineExceeded, after the communicator's timeout, names members that have not come.
  // Members may have the group, use it and fail in it before the others have it: Group then ends with that error there.
  absl::StatusOr<std::unique_ptr<Communicator>> Group(absl::Span<const Rank> members, absl::string_view name);

  // Ends every pending and later call of this communicator, on all its ranks, with `cause`; with InvalidArgument if
  // `cause` is OK. Other communicators go on. Any thread may call Abort at any time.
  void Abort(const absl::Status& cause);
  // OK, or the first error of this communicator; FailedPrecondition in a forked child.
  absl::Status status() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

#endif  // TUTTI_COMMUNICATOR_H_
