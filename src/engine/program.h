// A plan in the form that the executor runs: addresses as (base, offset), successors instead of dependencies.
#ifndef TUTTI_ENGINE_PROGRAM_H_
#define TUTTI_ENGINE_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/recodes.h"
#include "plan/stream_order.h"
#include "tutti/plan.h"

namespace tutti {

// Bases of this rank: index of Space (in, out, scratch, state); of peer r: kSpaces + kPeerSpaces·r + PlaceAmongPeers.
inline constexpr int kSpaces = 4;
inline constexpr int kPeerSpaces = 4;
// The place of a space among those that ranks touch in the memory of peers: in, out, scratch, block.
inline constexpr std::size_t PlaceAmongPeers(Space space) {
  return space == Space::kBlock ? 3 : static_cast<std::size_t>(space);
}
inline constexpr std::uint32_t BaseOf(Space space, Rank owner) {
  return static_cast<std::uint32_t>(owner == kSelf ? static_cast<std::size_t>(space)
                                                   : kSpaces + kPeerSpaces * static_cast<std::size_t>(owner) +
                                                         PlaceAmongPeers(space));
}
// The rank whose memory has the base; kSelf: this rank's.
inline constexpr Rank OwnerOf(std::uint32_t base) {
  return base < kSpaces ? kSelf : static_cast<Rank>((base - kSpaces) / kPeerSpaces);
}

struct Operand {
  std::uint32_t base = 0;
  std::int64_t offset = 0;
};

struct Instruction {
  StepKind kind = StepKind::kCopy;
  ReduceOp op = ReduceOp::kSum;
  Collective collective = Collective::kAllReduce;  // of a native step
  DType dst_type = DType::kF32;
  DType src_type = DType::kF32;
  bool accumulate = false;
  bool finite = false;
  bool by_factor = false;
  bool streaming = false;
  bool touches_output = false;
  bool touches_peer = false;   // reads or writes a peer's memory
  bool fills_scratch = false;  // copies from a buffer of the caller to this rank's scratch
  bool reads_process = false;  // copies from a buffer of a peer, perhaps in the peer's process
  std::uint16_t codec = 0;
  std::uint16_t num_dsts = 0;
  std::uint16_t num_srcs = 0;
  std::int32_t divisor = 1;
  std::uint32_t first_coefficient = 0;
  std::uint16_t group = 0;  // of a native step, as in Step::group: an index into the groups of the program's plan
  Rank peer = kSelf;        // of a native step: the place of the root in the group
  std::uint32_t ordinal = 0;
  std::uint32_t first_operand = 0;  // index of the first dst; the srcs follow the dsts
  std::uint32_t first_successor = 0;
  std::uint32_t num_successors = 0;
  // Elements of the destination (of the source for kSend, kEncode); the count of a native call, as in CollectiveSpec.
  std::int64_t count = 0;
  std::int64_t bytes = 0;          // bytes of the message, or of the encoded side
  std::int64_t wire_bytes = 0;     // bytes moved to or from other ranks
  std::int64_t touched_bytes = 0;  // bytes of all operands
};

// The numbers of messages between this rank and one peer.
struct MessageCounts {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

// What was called, as far as all ranks that make the call must agree.
struct CallIdentity {
  std::uint64_t signature = 0;
  std::int64_t count = 0;
  std::uint32_t owner = 0;  // CallOptions::owner
  std::uint64_t round = 0;

  bool operator==(const CallIdentity&) const = default;
};

struct Program {
  Plan plan;
  std::vector<Instruction> instructions;
  std::vector<Operand> operands;
  std::vector<StepId> successors;
  std::vector<std::uint32_t> dependency_counts;
  std::vector<StepId> initially_ready;  // the first step of the plan last, as on HostRun's stack
  std::int64_t wire_bytes = 0;          // the wire_bytes of all instructions
  int num_waits = 0;
  int num_natives = 0;
  // The number of steps that touch this rank's output, which is final after them; 0: it is final when all steps are
  // complete.
  std::uint32_t output_steps = 0;
  // The program signals or waits for signals, for which its runs need a free lane.
  bool uses_lane = false;
  // The scratch of a run fits beside its announcement (LaneHalf), and lies there.
  bool has_short_scratch = false;
  // The steps touch little memory, and none is a message: a caller who is about to wait begins such a run itself.
  bool is_short = false;
  // Whether any instruction touches memory of a peer that the peer may use for something else as soon as a call has
  // failed: reads or writes the peer's buffers, or writes to its scratch. Scratch that is only read may change, but
  // serves nothing else until this rank has completed the run or closed the channel.
  bool touches_buffers_of_peers = false;
  // Bytes at the end of the lane's scratch in which a rank tells its peers the counts of its blocks, in an all_to_all_v
  // that uses a lane; 0: none, also in a world of more than kMaxRanksWithBlocks ranks.
  std::int64_t counts_bytes = 0;
  // By peer and space (PlaceAmongPeers): the end of the ranges that this rank's steps touch there.
  std::vector<std::array<std::int64_t, kPeerSpaces>> peer_extents;
  // Whether peers read or write this rank's in and out, which therefore must lie in its region.
  bool shares_io = false;
  // The program of the same call by a plan in which peers touch scratch alone, or which reads processes. All ranks go
  // over to that program when buffers of some rank lie where peers cannot map them. Null: such buffers are staged
  // whole.
  std::shared_ptr<const Program> for_private_buffers;
  // Ranks do no more in the memory of their peers than copy from it, and read buffers that they cannot map from the
  // process of the peer (Endpoint::ReadProcess). True for programs for private buffers alone.
  bool reads_processes = false;
  // The number of steps with which both programs begin; once they are complete, a rank knows whether any rank's buffers
  // are private (see SharedBeginning). 0 without for_private_buffers.
  StepId shared_beginning = 0;
  // Whether a call must be in place on all ranks or on none, because it decides where peers find each other's input.
  bool in_place_must_match = false;
  bool point_to_point = false;
  // The plan has no steps: the sends and receives of a run on a stream are given to it (StreamRun::SetMessages).
  bool takes_messages = false;
  // One entry per peer; empty when no step is a message, and for a Send or Recv, whose message has a tag and no number.
  std::vector<MessageCounts> messages;
  // For a StreamExecutor: the order in which the steps are enqueued. Null: the program is for a HostExecutor.
  std::shared_ptr<const StreamOrder> stream_order;
  std::vector<Recode> recodes;  // in the order of the launches
  // Collective, dtype, op, root, in_place and a hash of the plan's name, round and maker, packed so that a mismatch can
  // be explained.
  std::uint64_t signature = 0;

  absl::Span<const Operand> dsts(const Instruction& i) const { return {operands.data() + i.first_operand, i.num_dsts}; }
  absl::Span<const Operand> srcs(const Instruction& i) const {
    return {operands.data() + i.first_operand + i.num_dsts, i.num_srcs};
  }
};

// `shares_only_scratch`: no peer touches the buffers of this rank, which cannot be told from the plan of one rank.
// `maker`, here and below: what the plan was made by, beyond its name, such as the options of an algorithm; calls of
// programs of different makers do not match.
std::shared_ptr<const Program> Compile(Plan plan, bool shares_only_scratch = false, absl::string_view maker = "");
// A program of `plan`, in which ranks reach their peers' buffers and send no messages, with
// Program::for_private_buffers, which may have Program::reads_processes. Both plans are of one call, and all ranks have
// both; `shared_beginning` is not 0.
std::shared_ptr<const Program> Compile(Plan plan, Plan for_private_buffers, StepId shared_beginning,
                                       bool reads_processes = false, absl::string_view maker = "");
// A program of `plan` for streams; `order` is the plan's.
std::shared_ptr<const Program> CompileForStream(Plan plan, StreamOrder order, absl::string_view maker = "");
// A program for streams whose runs are sends and receives that are given to each run; `plan` has no steps.
std::shared_ptr<const Program> CompileForMessages(Plan plan);
// About how much memory `program` takes, with its plan and one call that runs it, the data aside.
std::int64_t BytesOf(const Program& program);

// Whether `mine`, a call of `program`, and `theirs` may be one call. The two must be equal, but unless
// Program::in_place_must_match some ranks may work in place and others not.
bool Match(const Program& program, const CallIdentity& mine, const CallIdentity& theirs);
// Equal for calls that match, and seldom for others.
std::uint8_t HashOf(const CallIdentity& identity);
// "rank 3 called broadcast dtype=f32 root=0 count=8 with another schedule where rank 0 called …": how two calls that
// should be one differ.
std::string ExplainMismatch(const Program& program, const CallIdentity& mine, Rank peer, const CallIdentity& theirs);

}  // namespace tutti

#endif  // TUTTI_ENGINE_PROGRAM_H_
