// Ranks that can run collectives.
#ifndef TUTTI_COMMUNICATOR_H_
#define TUTTI_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/bootstrap.h"
#include "tutti/buffer.h"
#include "tutti/collective.h"
#include "tutti/plan.h"
#include "tutti/schedule.h"
#include "tutti/transport.h"
#include "tutti/work.h"

namespace tutti {

// What is not set here comes from the environment (docs/configuration.md). Equal on all ranks.
struct CommunicatorOptions {
  // Every wait for a peer ends after this long with DeadlineExceeded that names it; TUTTI_TIMEOUT.
  std::optional<absl::Duration> timeout = std::nullopt;
  // Schedules that calls use instead of the selector's choice, "all_reduce=ring,broadcast=binomial"; TUTTI_SCHEDULE.
  std::optional<std::string> schedules = std::nullopt;
  // Pipelining unit of message schedules, in bytes.
  std::int64_t segment_bytes = 256 << 10;
  // "auto" maps peers' memory when all of them are on this node and else sends messages; "never" always sends messages.
  enum class Mapping : std::uint8_t { kAuto, kNever } mapping = Mapping::kAuto;
};

struct CallOptions {
  // Which schedule serves the call; nullptr: the selector decides, equally on all ranks.
  const Schedule* schedule = nullptr;
  // The caller promises to Wait soon, so that the engine thread need not be woken: saves a context switch. The call may
  // make no progress until then.
  bool caller_drives = false;
  // Cores are needed sooner than the result: who waits for it sleeps until something arrives, and does not poll.
  bool background = false;
  // Note when the call ends, for Work::end_nanos().
  bool timed = false;
  // Names the random numbers of codecs that round at random: a run of a bound plan repeats those of one with an equal
  // number, and is independent of all others. Give every run its own: rounding is right on average only over many.
  std::uint64_t draw = 0;
};

// What a rank has moved since its first communicator was created, in that and all that Split made of it.
struct Counters {
  std::int64_t calls = 0;
  std::int64_t wire_bytes = 0;  // messages sent, and reads and writes of mapped peer memory
};

// The memory a plan runs on. In place: `in` is unused. `state` is persistent memory of plan.state_bytes. `scratch`, of
// plan.scratch_bytes, spares a plan that maps no peers memory of its own: plans that never run at the same time may
// share it.
struct PlanBuffers {
  const void* in = nullptr;
  void* out = nullptr;
  void* state = nullptr;
  void* scratch = nullptr;
};

class Engine;

// A plan with its memory: started any number of times, one run at a time, at no cost of allocation or look-up. Must not
// outlive its communicator. Not thread-safe; different bound plans are independent.
class BoundPlan {
 public:
  BoundPlan();
  ~BoundPlan();
  BoundPlan(BoundPlan&&) noexcept;
  BoundPlan& operator=(BoundPlan&&) noexcept;

  // Starts a run; every rank must start the same plans of a communicator in the same order.
  Work Start(const CallOptions& options = {});
  const Plan& plan() const;

 private:
  friend class Communicator;
  class Impl;
  explicit BoundPlan(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Thread-safe: any thread may submit, but all ranks must submit their collectives in the same order. The arguments of
// the calls follow NCCL's: input, output, count (see CollectiveSpec), dtype, op or root; equal input and output
// pointers (or, where blocks are gathered or scattered, a pointer to the own block) mean in place. Memory from Allocate
// is used where it is; any other memory works through staging.
//
// Errors: InvalidArgument names the argument; Unavailable names the dead rank; DeadlineExceeded names the rank, the
// call and the step that waited; Aborted carries the first cause. After the first error every pending and later call
// ends with it: recovery is a new communicator.
class Communicator {
 public:
  // Collective over the ranks of `bootstrap`; takes the transport from the environment (TUTTI_TRANSPORT).
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Bootstrap& bootstrap,
                                                              const CommunicatorOptions& options = {});
  // Likewise over a transport that is not connected yet.
  static absl::StatusOr<std::unique_ptr<Communicator>> Create(const Bootstrap& bootstrap,
                                                              std::unique_ptr<Transport> transport,
                                                              const CommunicatorOptions& options = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Rank rank() const;
  int size() const;
  absl::string_view transport() const;
  // Whether plans may use peers' memory directly.
  const PlanOptions& plan_options() const;
  Counters counters() const;
  // The store the ranks met at (of a split communicator: a part that only its ranks see), for agreements of the layers
  // above.
  Store& store() const;
  absl::Duration timeout() const;

  // Memory in the arena. ResourceExhausted when the region is full.
  absl::StatusOr<Buffer> Allocate(std::int64_t bytes);

  Work AllReduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, const CallOptions& = {});
  Work ReduceScatter(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, const CallOptions& = {});
  Work AllGather(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& = {});
  Work Broadcast(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work Reduce(const void* in, void* out, std::int64_t count, DType dtype, ReduceOp op, Rank root,
              const CallOptions& = {});
  Work Gather(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work Scatter(const void* in, void* out, std::int64_t count, DType dtype, Rank root, const CallOptions& = {});
  Work AllToAll(const void* in, void* out, std::int64_t count, DType dtype, const CallOptions& = {});
  // `send_counts` and `recv_counts` hold an entry per rank; blocks are packed in rank order.
  Work AllToAllV(const void* in, absl::Span<const std::int64_t> send_counts, void* out,
                 absl::Span<const std::int64_t> recv_counts, DType dtype, const CallOptions& = {});
  Work Barrier(const CallOptions& = {});
  // Point to point: the k-th Send to a rank meets the k-th Recv from this one, independently of collectives.
  Work Send(const void* in, std::int64_t count, DType dtype, Rank to, const CallOptions& = {});
  Work Recv(void* out, std::int64_t count, DType dtype, Rank from, const CallOptions& = {});

  // Any call as a value.
  Work Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& = {});

  // The plan that serves a call, and why that schedule was chosen.
  absl::StatusOr<Plan> PlanFor(const CollectiveSpec& spec, const CallOptions& = {}) const;
  std::string Explain(const CollectiveSpec& spec) const;

  // Binds a plan of this rank to memory that outlives the result. Every rank must bind and start matching plans.
  absl::StatusOr<BoundPlan> Bind(Plan plan, const PlanBuffers& buffers);

  // New communicators of the ranks with equal `color`, ordered by (key, rank); collective. A negative color: none
  // (null). Threads may split different communicators at the same time. ResourceExhausted, on all ranks, when Split has
  // put one of them into 2047 groups already, whether these are still there or not.
  absl::StatusOr<std::unique_ptr<Communicator>> Split(int color, int key);

  // Ends every pending and later call of this rank and its peers with `cause` (not OK). Any thread, any time.
  void Abort(const absl::Status& cause);
  // OK, or the first error of this communicator.
  absl::Status status() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti

#endif  // TUTTI_COMMUNICATOR_H_
