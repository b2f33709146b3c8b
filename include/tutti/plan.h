// A plan: the steps one rank performs for one collective or one bucket of an algorithm. A plan is plain data: it can be
// verified for all ranks, costed, printed, replayed and executed; it touches no network, thread, clock or allocator.
#ifndef TUTTI_PLAN_H_
#define TUTTI_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/codec.h"
#include "tutti/collective.h"
#include "tutti/dtype.h"

namespace tutti {

// The memory that a Ref points into. A call in place has one memory, kOut, as long as the longer of input and output:
// the whole output of all_gather and gather, the whole input of reduce_scatter and scatter; the shorter of the two is
// this rank's block of it. Bytes of an in-place input that are not output keep their value. In place, kIn is empty.
enum class Space : std::uint8_t {
  kIn,       // the caller's input; read-only; empty when the call is in place
  kOut,      // the caller's output (and input, when in place)
  kScratch,  // working memory of one run; contents undefined at its start
  kState,    // persistent per bucket: what a checkpoint saves
  // Of a peer only, in an all_to_all_v: the block of the peer's input that is for this rank. A rank knows how long the
  // block is; only the peer knows where in its input the block lies, and tells so with its first signal of the run.
  kBlock,
};

inline constexpr Rank kSelf = -1;

// Ranks tell each other where blocks (Space::kBlock) lie in worlds of at most so many ranks.
inline constexpr int kMaxRanksWithBlocks = 4096;

// A range of bytes that holds `dtype` elements in one space of this rank, or of a peer whose memory is mapped.
struct Ref {
  Space space = Space::kOut;
  DType dtype = DType::kF32;
  Rank owner = kSelf;
  std::int64_t offset = 0;  // bytes from the start of the space
  std::int64_t bytes = 0;

  std::int64_t count() const { return bytes / SizeOf(dtype); }
  // Elements [first, first + n) of this range.
  Ref Elements(std::int64_t first, std::int64_t n) const;
  // The same range in the memory of `rank`.
  Ref At(Rank rank) const;

  bool operator==(const Ref&) const = default;
};

enum class StepKind : std::uint8_t {
  kSend,     // srcs[0] → message to `peer`
  kRecv,     // message from `peer` → dsts[0]
  kSignal,   // tell every rank that this rank has completed all earlier steps (its `ordinal`-th signal of the run)
  kWait,     // wait until `peer` has made its `ordinal`-th signal of this run, which tells where its memory lies: only
             // steps that depend on a wait for a peer, directly or through steps of their rank, touch the peer's memory
  kReduce,   // every dst ← op(srcs…), combined in the order given; avg divides by `divisor`
  kCopy,     // every dst ← srcs[0], converting when the dtypes differ
  kScale,    // dsts[0] ← srcs[0] / divisor; if `by_factor`, srcs[0] · factor of the call (CallOptions::factor)
  kCombine,  // dsts[0] ← Σ srcs[i] · coefficients[i], left to right; if `finite`, 0 where that is no finite number
  kEncode,   // dsts[0] (bytes) ← codec(srcs[0])
  kDecode,   // dsts[0] ← codec⁻¹(srcs[0] (bytes)); adds instead when `accumulate`
  kNative,   // dsts[0] ← this rank's result of `collective`, to which the rank gives srcs[0]: see native.h
};

absl::string_view Name(StepKind kind);
absl::string_view Name(Space space);

// Index of a step in its plan.
using StepId = std::uint32_t;

// One step of a plan. The lists of a step (refs, dependencies, coefficients) are ranges of the plan's vectors, so that
// a step is a plain, fixed-size struct.
struct Step {
  StepKind kind = StepKind::kCopy;
  ReduceOp op = ReduceOp::kSum;                    // for kReduce, and for kNative where the collective reduces
  Collective collective = Collective::kAllReduce;  // for kNative
  bool accumulate = false;                         // for kDecode: add to the destination
  bool finite = false;                             // for kCombine: results that are no finite numbers become 0
  bool by_factor = false;                          // for kScale: multiply by the factor of the call
  std::uint16_t codec = 0;                         // for kEncode and kDecode: index into Plan::codecs
  // The number of a signal (kSignal, kWait), from 1; of a message among those with its peer, from 0; of a kNative among
  // those of its group, from 0.
  std::uint32_t ordinal = 0;
  Rank peer = kSelf;                    // for kSend, kRecv and kWait; for kNative the root, where there is one
  std::int32_t divisor = 1;             // for kScale, and for kReduce and kNative with avg
  std::uint32_t first_coefficient = 0;  // for kCombine, which has one for each source
  std::uint32_t first_ref = 0;          // index of the first dst; the srcs follow the dsts
  std::uint16_t num_dsts = 0;
  std::uint16_t num_srcs = 0;
  std::uint16_t group = 0;      // for kNative: 0: all ranks of the plan; g > 0: Plan::groups[g - 1]
  std::uint32_t first_dep = 0;  // index of the first of the steps that must be complete before this one starts
  std::uint32_t num_deps = 0;

  bool operator==(const Step&) const = default;
};

// The meaning of a range of a bucket's persistent memory, for code that saves, loads or moves it.
enum class StateKind : std::uint8_t {
  kResidual,  // what a codec lost of this rank's values, which later messages make up for; zero at first
  kReplica,   // the weights of rank `of` as this rank knows them; at first the weights that all ranks start with
};
absl::string_view Name(StateKind kind);

struct StateRange {
  std::string name;  // "residual", "left": unique in its plan
  StateKind kind = StateKind::kResidual;
  // kReplica: the rank whose weights the range holds. A rank's own replica names that rank, and ends as the output.
  Rank of = kSelf;
  Ref range = {};
  std::int64_t first_element = 0;  // kResidual: position in the bucket of the range's first element
  // kResidual: the result lacks the range's values divided by this number. The divisor is the number of ranks where
  // ranks hold back parts of their own values, which are averaged.
  std::int32_t divisor = 1;

  bool operator==(const StateRange&) const = default;
};

// Steps [begin, end) of a plan, which a schedule has written for an algorithm (BuildPart).
struct PlanPart {
  std::string schedule;  // "all_reduce:ring"
  StepId begin = 0;
  StepId end = 0;
};

struct Plan {
  std::string name;  // "all_reduce:ring", "bytegrad"
  int round = 0;     // the number of this plan among the bucket's plans: see Algorithm::rounds
  Rank rank = 0;
  int size = 1;
  CollectiveSpec spec;
  std::int64_t in_bytes = 0;
  std::int64_t out_bytes = 0;
  std::int64_t scratch_bytes = 0;
  std::int64_t state_bytes = 0;
  std::vector<Step> steps;
  std::vector<Ref> refs;
  std::vector<StepId> deps;
  std::vector<CodecChoice> codecs;
  std::vector<Coefficient> coefficients;
  std::vector<StateRange> states;  // every range of kState that is in use
  // The groups whose native steps this rank takes part in, other than that of all ranks: the ranks by their places in
  // the group, which are equal on all of them.
  std::vector<std::vector<Rank>> groups;
  // The share of each rank's input in this rank's output, in rank order, for a plan of an algorithm that mixes the
  // weights of neighbours; empty: the output is what the collective promises. The rows of all ranks form a matrix whose
  // rows and columns sum to 1. A replica counts as the input of its rank, but the shares of what are replicas sum to 0:
  // ranks that agree then stay together with what the training changed, and no change is lost.
  std::vector<double> mixing;
  // The node of each rank, when the replica of one rank's weights stands for all ranks of its node; empty: a replica
  // stands for its own rank only.
  std::vector<int> mixing_nodes;
  // What schedules have written of the plan of an algorithm, for errors. A part within another one comes after it.
  std::vector<PlanPart> parts;

  absl::Span<const Ref> dsts(const Step& s) const { return {refs.data() + s.first_ref, s.num_dsts}; }
  absl::Span<const Ref> srcs(const Step& s) const { return {refs.data() + s.first_ref + s.num_dsts, s.num_srcs}; }
  absl::Span<const Coefficient> coefficients_of(const Step& s) const {
    return {coefficients.data() + s.first_coefficient, s.num_srcs};
  }
  absl::Span<const StepId> deps_of(const Step& s) const { return {deps.data() + s.first_dep, s.num_deps}; }
  // The ranks of a native step's group; empty: all ranks of the plan.
  absl::Span<const Rank> group_of(const Step& s) const {
    return s.group == 0 ? absl::Span<const Rank>() : absl::MakeConstSpan(groups[s.group - std::size_t{1}]);
  }
  // The schedule that has written step `id` of an algorithm's plan; empty where the algorithm itself has.
  absl::string_view schedule_of(StepId id) const;
  // True when a step reads or writes a peer's memory, or signals: such a plan runs only where peers are mapped.
  bool maps_peers() const;
};

// Bytes a rank moves to or from other ranks in one run: messages sent, reads and writes of mapped peer memory, and what
// native steps move (NativeBytes).
std::int64_t WireBytes(const Plan& plan);

// Makes the plan of any rank of a call: a pure function, the same on all ranks.
using PlanOfRank = absl::FunctionRef<absl::StatusOr<Plan>(Rank rank)>;

}  // namespace tutti

#endif  // TUTTI_PLAN_H_
