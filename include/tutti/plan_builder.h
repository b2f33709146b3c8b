// PlanBuilder writes a plan: the author states steps in sequential order, and the builder derives which of them may run
// at the same time.
#ifndef TUTTI_PLAN_BUILDER_H_
#define TUTTI_PLAN_BUILDER_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/native.h"
#include "tutti/plan.h"

namespace tutti {

struct CostModel;  // cost_model.h

// A half-open range of elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

// Chunk `index` of `count` elements that are cut into `parts` nearly equal chunks: the first (count mod parts) chunks
// are one element longer. An empty range where there are no parts.
Range ChunkOf(std::int64_t count, int parts, int index);

// The least PlanOptions::segment_bytes: a segment holds an element of most types.
inline constexpr std::int64_t kMinSegmentBytes = 8;

struct PlanOptions {
  // Longer ranges are cut into segments of at most this many bytes (≥ kMinSegmentBytes). Equal on all ranks. A
  // builder raises the limit where the call's longest buffer would have more than 65,536 segments, and to one element
  // where an element is longer.
  std::int64_t segment_bytes = 256 << 10;
  // The memory of peers on the same node is mapped: Ref::At and Wait may be used for these peers, and Signal.
  bool peers_mapped = false;
  // The node of each rank, as any numbers; empty: all ranks are on one node, mapped or not. Within WithinGroup: the
  // node of each rank of the group.
  std::vector<int> nodes = {};
  // The caller's buffers lie where peers cannot map them: BuildSelected then writes the schedule that
  // ChooseForPrivateBuffers names. Equal on all ranks.
  bool private_buffers = false;
  // Every rank can read the processes of the other ranks on its node, and so copy from their buffers wherever these lie
  // (Endpoint::ReadProcess). Equal on all ranks.
  bool reads_processes = false;
  // The machine for which schedules are chosen; nullptr: DefaultCostModel(). Equal on all ranks.
  std::shared_ptr<const CostModel> cost_model = nullptr;
  // The whole collectives that a transport beside the messages performs on the caller's buffers; by default none. Equal
  // on all ranks.
  NativeCollectives native = {};

  // The machine for which schedules are chosen: cost_model, or DefaultCostModel() where that is nullptr.
  const CostModel& model() const;
  // Whether there are several nodes, and several ranks on one of them.
  bool has_hierarchy() const;
  // Whether segment_bytes is kMinSegmentBytes or more, and `nodes` is empty or has a node for each of `size` ranks;
  // otherwise InvalidArgument.
  absl::Status Check(int size) const;
  // Whether the memory of all peers is mapped.
  bool all_mapped() const { return peers_mapped && one_node(); }
  bool one_node() const { return std::adjacent_find(nodes.begin(), nodes.end(), std::not_equal_to<>()) == nodes.end(); }
};

// Example: a rank of a ring passes its input on to the next rank.
//   b.Send((b.rank() + 1) % b.size(), b.in());
//   b.Recv((b.rank() + b.size() - 1) % b.size(), b.out());
//
// Dependencies: two steps are ordered when they touch overlapping bytes of one rank's memory and one of them writes.
// Signal follows every earlier step (SignalAfter: some of them); every later step follows Wait. The k-th Send from a to
// b is received by the k-th Recv of b from a, whatever order they complete in. Ranges of zero elements make no step,
// but for the one message of a send or recv.
//
// Segments: Send, Recv, Reduce, Copy and Scale of more than options.segment_bytes become one step per segment. Steps
// on one chunk are cut at the same elements, so that straight-line text over chunks becomes a pipeline: nothing has
// to be cut by hand. Encode and Decode stay whole, because a message of a codec cannot be cut: encode segment by
// segment. The message of a send or recv stays whole too, because its receiver may not know the sender. A native step
// stays whole, because its transport has a pipeline of its own; whoever wants several steps calls Native for parts.
//
// Native steps: the k-th Native of a group's ranks is one collective, equal on all of them. A rank takes its native
// steps in the order of the text, one after the other, and the ranks of all groups must meet in one order.
//
// Not thread-safe. Misuse (a range outside its space, differing lengths, a peer out of range) is remembered and
// returned by Build as InvalidArgument that names the step.
class PlanBuilder {
 public:
  PlanBuilder(std::string name, const CollectiveSpec& spec, Rank rank, int size, const PlanOptions& options);
  ~PlanBuilder();
  PlanBuilder(PlanBuilder&&) noexcept;
  PlanBuilder& operator=(PlanBuilder&&) noexcept;

  const CollectiveSpec& spec() const { return spec_; }
  const PlanOptions& options() const { return options_; }
  Rank rank() const { return rank_; }
  int size() const { return size_; }
  // The number of ranks of the communicator, also within WithinGroup.
  int world_size() const { return plan_.size; }

  // The whole input and output of the call. In place both are ranges of kOut, which is then the larger of the two
  // (see Space): in() is this rank's block of out() in all_gather and gather at the root, out() this rank's block of
  // in() in reduce_scatter and scatter at the root, otherwise they are equal or one is empty.
  Ref in() const { return in_; }
  Ref out() const { return out_; }
  // Of an all_to_all_v whose peers are mapped: the block that `peer`, another rank, sends to this rank, where the block
  // lies in the input of `peer`. For whole calls only, not for parts of a plan (Within). May be read after this rank
  // has waited for a signal of `peer`.
  Ref BlockFrom(Rank peer);
  // Working memory for `count` elements, 64-byte aligned. The range keeps its place for the length of the run.
  Ref Scratch(DType dtype, std::int64_t count);
  // Persistent memory of the bucket: every run finds it as the last run left it. `name` is unique in the plan;
  // checkpoints find the memory by its name. A residual is zero at first. A replica holds the weights of rank `of`,
  // which may be this rank, and is at first the weights that all ranks start with. `first_element` is the place in the
  // bucket of the first element that the residual belongs to. `divisor`: see StateRange.
  Ref Residual(std::string name, DType dtype, std::int64_t count, std::int64_t first_element = 0,
               std::int32_t divisor = 1);
  Ref Replica(std::string name, Rank of, DType dtype, std::int64_t count);

  void Send(Rank to, const Ref& src);
  void Recv(Rank from, const Ref& dst);
  void Signal();
  // A signal that follows only the earlier signals, the latest Wait, and the earlier steps that touch `touched`, ranges
  // of this rank's memory and of peers': peers may go on while messages that have nothing to do with these ranges are
  // under way.
  void SignalAfter(absl::Span<const Ref> touched);
  void Wait(Rank peer);
  // Waits for the signal of every other rank (of `peers`) that corresponds to this rank's latest one.
  void WaitAll();
  void WaitFor(absl::Span<const Rank> peers);
  // Every dst ← op(srcs…), in the order given. Avg divides the sum by the size of the world.
  // All refs have one length and one dtype per side, which has the operator (HasOp) and is not premul_sum; f32 sources
  // may be rounded into f16 and bf16 destinations.
  // A dst may be one of the srcs (the same range); no two dsts overlap.
  void Reduce(absl::Span<const Ref> dsts, absl::Span<const Ref> srcs, ReduceOp op);
  void Reduce(const Ref& dst, absl::Span<const Ref> srcs, ReduceOp op);
  // dst ← (Σ srcs) / number of srcs, added in the order given.
  void Mean(const Ref& dst, absl::Span<const Ref> srcs);
  // dst ← Σ srcs[i] · coefficients[i], in the order given; every product, quotient and sum is rounded by itself, in the
  // accumulator of the dtype. All refs have one length and one floating dtype.
  void Combine(const Ref& dst, absl::Span<const Ref> srcs, absl::Span<const Coefficient> coefficients);
  // dst ← whole - part, or 0 where that is not finite: a residual must not keep one NaN for ever.
  void Remainder(const Ref& dst, const Ref& whole, const Ref& part);
  // Every dst ← src, converting when the dtypes differ (Converts). Copying a range to itself makes no step.
  void Copy(absl::Span<const Ref> dsts, const Ref& src);
  void Copy(const Ref& dst, const Ref& src);
  void Scale(const Ref& dst, const Ref& src, std::int32_t divisor);
  // dst ← src · the factor that this rank gives with the call (CallOptions::factor). Floating and complex types.
  void ScaleByFactor(const Ref& dst, const Ref& src);
  // Scratch for the message in which `codec` encodes `count` elements. Nothing has to be encoded or sent for no
  // elements: there the range is empty, whatever Codec::encoded_bytes says of them.
  Ref Message(std::int64_t count, const CodecChoice& codec);
  // Messages are kU8 ranges as long as Message(count, codec); sources and decoded values are f32.
  void Encode(const Ref& dst, const Ref& src, const CodecChoice& codec);
  void Decode(const Ref& dst, const Ref& src, const CodecChoice& codec, bool accumulate = false);
  // The collective `spec` among the size() ranks of this part of the plan, at least two, performed as a whole by the
  // native transport: this rank gives `in` and gets `out`, ranges of its own memory, which may lie in place. Avg
  // divides by size(), which must then be the size of the world. No premultiplied sums.
  void Native(const CollectiveSpec& spec, const Ref& in, const Ref& out);

  // Declares that the output is not what the collective promises, but the sum of all ranks' inputs times `weights`, one
  // weight per rank. `nodes` is the node of each rank, when the replica of one rank's weights stands for all ranks of
  // its node. For plans of algorithms: a schedule keeps the promise of its collective, and keeps no state either.
  void PromiseMixing(std::vector<double> weights, std::vector<int> nodes = {});

  // Lets `write` write a part of this plan as the plan of another call: `spec`, from `in` to `out`, which are ranges of
  // this plan's memory (`in` may be `out`: in place). Algorithms use schedules this way.
  void Within(const CollectiveSpec& spec, const Ref& in, const Ref& out, absl::FunctionRef<void(PlanBuilder&)> write);
  // Does what Within does, among the ranks of `group` only. The ranks of `group` differ, this rank is among them, and
  // `group` is equal on all of them. Within `write`, rank(), size() and every peer are places in the group. Avg still
  // divides by the size of the world.
  void WithinGroup(absl::Span<const Rank> group, const CollectiveSpec& spec, const Ref& in, const Ref& out,
                   absl::FunctionRef<void(PlanBuilder&)> write);

  // Lets `write`, which belongs to the schedule called `schedule` ("all_reduce:ring"), go on with this plan: errors
  // about its steps name the schedule. See BuildPart (schedule.h).
  void WriteBy(std::string schedule, absl::FunctionRef<void(PlanBuilder&)> write);

  absl::StatusOr<Plan> Build() &&;

 private:
  class Dependencies;

  Ref Allocate(Space space, DType dtype, std::int64_t count);
  Ref AddState(StateRange state, DType dtype, std::int64_t count);
  void AppendCombine(const Ref& dst, absl::Span<const Ref> srcs, absl::Span<const Coefficient> coefficients,
                     bool finite);
  void AppendReduce(absl::Span<const Ref> dsts, absl::Span<const Ref> srcs, ReduceOp op, std::size_t divisor);
  std::int64_t SegmentCount(DType dtype) const;
  // The world rank of the member at position `place` of the group for which steps are being written.
  Rank WorldRank(Rank place) const { return group_.empty() ? place : group_[place]; }
  bool CheckPeer(StepKind kind, Rank peer);
  bool CheckSignal();
  bool CheckMapped(StepKind kind);
  bool CheckMapped(StepKind kind, Rank peer);
  bool CheckRef(StepKind kind, absl::string_view field, Ref& ref, bool written);
  bool CheckRefs(StepKind kind, absl::Span<Ref> dsts, absl::Span<Ref> srcs);
  bool CheckCodec(StepKind kind, const Ref& encoded, const Ref& plain, const CodecChoice& choice);
  Step& Append(const Step& step, absl::Span<const Ref> dsts, absl::Span<const Ref> srcs);
  void AppendSegments(const Step& step, absl::Span<const Ref> dsts, absl::Span<const Ref> srcs);
  void AppendCodec(StepKind kind, Ref dst, Ref src, const CodecChoice& choice, bool accumulate);
  std::uint16_t GroupIndex();
  void Fail(const std::string& what);

  Plan plan_;
  PlanOptions options_;
  // The part of the plan that is being written:
  CollectiveSpec spec_;
  Ref in_;
  Ref out_;
  std::vector<Rank> group_;  // the group's ranks by place; empty: the world
  Rank rank_ = 0;
  int size_ = 0;
  absl::Status status_;
  std::uint32_t signals_ = 0;
  std::vector<std::uint32_t> waits_;
  std::vector<std::uint32_t> sends_;
  std::vector<std::uint32_t> recvs_;
  std::vector<std::uint32_t> natives_;  // by group of the plan
  std::unique_ptr<Dependencies> dependencies_;
};

}  // namespace tutti

#endif  // TUTTI_PLAN_BUILDER_H_
