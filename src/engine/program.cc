#include "engine/program.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/call_owner.h"
#include "engine/control_block.h"
#include "tutti/codecs/random.h"
#include "tutti/native.h"

namespace tutti {
namespace {

// Results this large leave the cache anyway: storing them past it saves reading the destination first.
constexpr std::int64_t kStreamingBytes = 32 << 20;

// Steps that touch this many bytes take a few microseconds.
constexpr std::int64_t kShortBytes = 64 << 10;

// Whether a step stores its results past the cache: not a destination that the step has just read, which is then in the
// cache; nor what this rank alone keeps, which its next steps may read (docs/decisions/0012).
bool StoresPastCache(const Plan& plan, absl::Span<const Ref> dsts, absl::Span<const Ref> srcs) {
  return plan.out_bytes >= kStreamingBytes && dsts.size() > 1 &&
         std::find(srcs.begin(), srcs.end(), dsts[0]) == srcs.end();
}

std::string NameOf(const Plan& plan) {
  return plan.round == 0 ? plan.name : absl::StrCat(plan.name, " (round ", plan.round, ")");
}

constexpr std::uint64_t kHashMask = 0x7fffff;

// FNV-1a: the same on every rank, whatever its standard library.
std::uint64_t HashName(const Plan& plan, absl::string_view maker, absl::string_view purpose = "") {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : absl::StrCat(NameOf(plan), maker, purpose))
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return (hash ^ (hash >> 24) ^ (hash >> 48)) & kHashMask;
}

struct Signature {
  Collective collective;
  DType dtype;
  ReduceOp op;
  Rank root;
  bool in_place;       // decides in which space peers find this rank's input
  std::uint64_t plan;  // hash of the plan's name, round and maker
};

std::uint64_t Pack(const Signature& call) {
  return static_cast<std::uint64_t>(call.collective) | static_cast<std::uint64_t>(call.dtype) << 8 |
         static_cast<std::uint64_t>(call.op) << 16 | (call.in_place ? 1u << 23 : 0u) |
         (static_cast<std::uint64_t>(call.root) & 0xffff) << 24 | call.plan << 40;
}

constexpr std::uint64_t kInPlaceBit = std::uint64_t{1} << 23;
// The call works on the memory of a GPU.
constexpr std::uint64_t kDeviceBit = std::uint64_t{1} << 63;
std::uint64_t HashIn(std::uint64_t signature) { return signature >> 40 & kHashMask; }

// What makes a call's plan: "schedule", or the "algorithm" of an optimizer's step.
absl::string_view KindOf(const Plan& plan) {
  return absl::StartsWith(plan.name, absl::StrCat(Name(plan.spec.collective), ":")) ? "schedule" : "algorithm";
}

// The text of a call, with the fields that its collective has, then `by`. A peer may have written `call`: an unknown
// value becomes "?", and no index out of range.
std::string Describe(const CallIdentity& call, absl::string_view by) {
  const auto number = static_cast<std::size_t>(call.signature & 0xff);
  const auto dtype = static_cast<std::size_t>(call.signature >> 8 & 0xff);
  const auto op = static_cast<std::size_t>(call.signature >> 16 & 0x7f);
  const std::string made_by = DescribeOwner(call.owner, call.round);
  if (number >= kAllCollectives.size()) return absl::StrCat("?", made_by, by);
  const Collective collective = kAllCollectives[number];
  std::string text(Name(collective));
  if (collective != Collective::kBarrier) {
    absl::StrAppend(&text, " dtype=", dtype < kAllDTypes.size() ? Name(kAllDTypes[dtype]) : "?");
  }
  if (Reduces(collective)) {
    absl::StrAppend(&text, " op=", op < kAllReduceOps.size() ? Name(kAllReduceOps[op]) : "?");
  }
  if (HasRoot(collective)) absl::StrAppend(&text, " root=", call.signature >> 24 & 0xffff);
  if ((call.signature & kInPlaceBit) != 0) absl::StrAppend(&text, " in_place");
  if ((call.signature & kDeviceBit) != 0) absl::StrAppend(&text, " on the memory of a GPU");
  if (collective != Collective::kBarrier && collective != Collective::kAllToAllV) {
    absl::StrAppend(&text, " count=", call.count);
  }
  return absl::StrCat(text, made_by, by);
}

Instruction Translate(const Plan& plan, const Step& step) {
  Instruction i;
  i.kind = step.kind;
  i.op = step.op;
  i.accumulate = step.accumulate;
  i.finite = step.finite;
  i.by_factor = step.by_factor;
  i.codec = step.codec;
  i.num_dsts = step.num_dsts;
  i.num_srcs = step.num_srcs;
  i.divisor = step.divisor;
  i.first_coefficient = step.first_coefficient;
  i.peer = step.peer;
  i.ordinal = step.ordinal;
  const absl::Span<const Ref> dsts = plan.dsts(step);
  const absl::Span<const Ref> srcs = plan.srcs(step);
  if (!dsts.empty()) {
    i.dst_type = dsts[0].dtype;
    i.count = dsts[0].count();
    i.streaming = StoresPastCache(plan, dsts, srcs);
  }
  if (!srcs.empty()) i.src_type = srcs[0].dtype;
  switch (step.kind) {
    case StepKind::kSend:
      i.count = srcs[0].count();
      i.bytes = srcs[0].bytes;
      i.wire_bytes = i.bytes;
      break;
    case StepKind::kRecv:
    case StepKind::kEncode:
      i.bytes = dsts[0].bytes;
      if (step.kind == StepKind::kEncode) i.count = srcs[0].count();
      break;
    case StepKind::kDecode:
      i.bytes = srcs[0].bytes;
      break;
    case StepKind::kNative: {
      const CollectiveSpec spec = NativeSpecOf(plan, step);
      i.dst_type = i.src_type = spec.dtype;
      i.collective = spec.collective;
      i.group = step.group;
      i.peer = HasRoot(spec.collective) ? spec.root : kSelf;
      i.count = spec.count;
      i.wire_bytes = NativeBytes(plan, step);
      break;
    }
    default:
      break;
  }
  for (const absl::Span<const Ref> refs : {dsts, srcs}) {
    for (const Ref& ref : refs) {
      i.touched_bytes += ref.bytes;
      if (ref.owner != kSelf && ref.owner != plan.rank) i.wire_bytes += ref.bytes;
    }
  }
  return i;
}

std::shared_ptr<Program> CompileOne(Plan source, bool shares_only_scratch, absl::string_view maker) {
  auto program = std::make_shared<Program>();
  program->plan = std::move(source);
  const Plan& plan = program->plan;
  program->point_to_point = IsPointToPoint(plan.spec.collective);
  const auto num_steps = plan.steps.size();
  program->instructions.reserve(num_steps);
  program->dependency_counts.resize(num_steps);
  std::vector<std::uint32_t> successor_counts(num_steps);
  bool has_messages = false;
  std::int64_t touched_bytes = 0;
  for (StepId id = 0; id < num_steps; ++id) {
    const Step& step = plan.steps[id];
    Instruction& instruction = program->instructions.emplace_back(Translate(plan, step));
    instruction.first_operand = static_cast<std::uint32_t>(program->operands.size());
    for (const bool written : {true, false}) {
      for (const Ref& ref : written ? plan.dsts(step) : plan.srcs(step)) {
        const Rank owner = ref.owner == plan.rank ? kSelf : ref.owner;
        program->operands.push_back({BaseOf(ref.space, owner), ref.offset});
        instruction.touches_output |= owner == kSelf && ref.space == Space::kOut;
        if (owner == kSelf) continue;
        program->peer_extents.resize(static_cast<std::size_t>(plan.size));
        instruction.touches_peer = true;
        program->touches_buffers_of_peers |= written || ref.space != Space::kScratch;
        std::int64_t& extent = program->peer_extents[static_cast<std::size_t>(owner)][PlaceAmongPeers(ref.space)];
        extent = std::max(extent, ref.offset + ref.bytes);
        program->shares_io |= ref.space != Space::kScratch;
      }
    }
    instruction.fills_scratch = step.kind == StepKind::kCopy && plan.srcs(step)[0].space != Space::kScratch &&
                                program->operands[instruction.first_operand].base == BaseOf(Space::kScratch, kSelf);
    program->wire_bytes += instruction.wire_bytes;
    touched_bytes += instruction.touched_bytes;
    const bool is_message = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
    has_messages |= is_message;
    if (!program->point_to_point && is_message) {
      program->messages.resize(static_cast<std::size_t>(plan.size));
      MessageCounts& counts = program->messages[static_cast<std::size_t>(step.peer)];
      ++(step.kind == StepKind::kSend ? counts.sent : counts.received);
    }
    program->num_waits += step.kind == StepKind::kWait ? 1 : 0;
    program->num_natives += step.kind == StepKind::kNative ? 1 : 0;
    program->uses_lane |= step.kind == StepKind::kSignal || step.kind == StepKind::kWait;
    program->output_steps += instruction.touches_output ? 1 : 0;
    program->dependency_counts[id] = step.num_deps;
    if (step.num_deps == 0) program->initially_ready.push_back(id);
    for (const StepId dep : plan.deps_of(step)) ++successor_counts[dep];
  }
  if (program->uses_lane) program->peer_extents.resize(static_cast<std::size_t>(plan.size));
  program->is_short = !has_messages && program->num_natives == 0 && touched_bytes <= kShortBytes;
  std::reverse(program->initially_ready.begin(), program->initially_ready.end());
  static_assert(2 * kMaxRanksWithBlocks * sizeof(std::int64_t) <= kLaneScratchBytes);
  const std::int64_t counts_bytes = 2 * plan.size * static_cast<std::int64_t>(sizeof(std::int64_t));
  if (plan.spec.collective == Collective::kAllToAllV && program->uses_lane && counts_bytes <= kLaneScratchBytes) {
    program->counts_bytes = counts_bytes;
  }
  program->has_short_scratch =
      program->uses_lane && program->counts_bytes == 0 && plan.scratch_bytes <= kShortScratchBytes;
  // In a collective with a root only the root knows whether its call is in place; peers find the root's memory in both
  // cases (Channel::Signal).
  program->in_place_must_match = program->uses_lane && !HasRoot(plan.spec.collective);
  // Peers may touch the input or output of a rank whatever the rank's own steps touch.
  program->shares_io |= program->uses_lane && !shares_only_scratch;
  if (program->shares_io) program->output_steps = 0;  // final at the end: peers write it, too
  std::uint32_t next = 0;
  for (StepId id = 0; id < num_steps; ++id) {
    program->instructions[id].first_successor = next;
    next += successor_counts[id];
  }
  program->successors.resize(next);
  for (StepId id = 0; id < num_steps; ++id) {
    for (const StepId dep : plan.deps_of(plan.steps[id])) {
      Instruction& before = program->instructions[dep];
      program->successors[before.first_successor + before.num_successors++] = id;
    }
  }
  program->signature = Pack(
      {plan.spec.collective, plan.spec.dtype, plan.spec.op, plan.spec.root, plan.spec.in_place, HashName(plan, maker)});
  return program;
}

// Whether the instruction, which touches a peer, reads more than the peer's scratch.
bool ReadsBuffer(const Program& program, const Instruction& instruction) {
  const absl::Span<const Operand> srcs = program.srcs(instruction);
  return std::any_of(srcs.begin(), srcs.end(),
                     [](const Operand& src) { return src.base != BaseOf(Space::kScratch, OwnerOf(src.base)); });
}

}  // namespace

std::shared_ptr<const Program> Compile(Plan plan, bool shares_only_scratch, absl::string_view maker) {
  return CompileOne(std::move(plan), shares_only_scratch, maker);
}

std::shared_ptr<const Program> Compile(Plan plan, Plan for_private_buffers, StepId shared_beginning,
                                       bool reads_processes, absl::string_view maker) {
  const std::shared_ptr<Program> program = CompileOne(std::move(plan), /*shares_only_scratch=*/false, maker);
  const std::shared_ptr<Program> other = CompileOne(std::move(for_private_buffers), !reads_processes, maker);
  other->reads_processes = reads_processes;
  for (Instruction& instruction : other->instructions) {
    instruction.reads_process = reads_processes && instruction.touches_peer && ReadsBuffer(*other, instruction);
  }
  program->output_steps = other->output_steps = 0;  // the output is final at the end, whichever program runs
  program->is_short &= other->is_short;
  // The signature covers both plans, because a call of a rank that has only one of them could not meet the others'
  // call.
  program->signature ^= HashName(other->plan, maker, " for private buffers") << 40;
  // The numbers of messages are taken before it is known which program runs.
  program->messages = other->messages;
  program->has_short_scratch = false;  // the other program may need more
  program->for_private_buffers = other;
  program->shared_beginning = shared_beginning;
  return program;
}

std::shared_ptr<const Program> CompileForStream(Plan plan, StreamOrder order, absl::string_view maker) {
  const std::shared_ptr<Program> program = CompileOne(std::move(plan), /*shares_only_scratch=*/false, maker);
  program->stream_order = std::make_shared<const StreamOrder>(std::move(order));
  program->recodes = FindRecodes(*program);
  program->signature |= kDeviceBit;
  program->output_steps = 0;  // the host learns only of the end
  program->is_short = false;
  program->messages.clear();  // a native transport matches messages by their order
  return program;
}

std::shared_ptr<const Program> CompileForMessages(Plan plan) {
  const auto program = std::make_shared<Program>(*CompileForStream(std::move(plan), {}));
  program->point_to_point = true;
  program->takes_messages = true;
  return program;
}

std::int64_t BytesOf(const Program& program) {
  const auto of = [](const auto&... vectors) { return ((vectors.capacity() * sizeof(vectors[0])) + ...); };
  const Plan& plan = program.plan;
  std::size_t of_groups = of(plan.groups);
  for (const std::vector<Rank>& group : plan.groups) of_groups += of(group);
  // The bytes for a step's dependencies, its message, and its place in the list of ready steps.
  constexpr std::size_t kPerStepOfARun = 64;
  return static_cast<std::int64_t>(
             sizeof(Program) +
             of(program.instructions, program.operands, program.successors, program.dependency_counts,
                program.peer_extents) +
             of(plan.steps, plan.refs, plan.deps, plan.coefficients, plan.states, plan.mixing, plan.mixing_nodes) +
             of_groups + of(plan.spec.send_counts, plan.spec.recv_counts) +
             kPerStepOfARun * program.instructions.size()) +
         (program.for_private_buffers != nullptr ? BytesOf(*program.for_private_buffers) : 0) +
         (program.stream_order != nullptr
              ? static_cast<std::int64_t>(of(program.stream_order->steps, program.stream_order->launches))
              : 0);
}

bool Match(const Program& program, const CallIdentity& mine, const CallIdentity& theirs) {
  if (program.in_place_must_match) return mine == theirs;
  CallIdentity comparable = theirs;
  comparable.signature ^= (mine.signature ^ theirs.signature) & kInPlaceBit;
  return mine == comparable;
}

std::uint8_t HashOf(const CallIdentity& identity) {
  std::uint64_t hash = (identity.signature & ~kInPlaceBit) * kernels::kGoldenRatio64;
  hash = (hash ^ hash >> 32 ^ static_cast<std::uint64_t>(identity.count)) * kernels::kGoldenRatio64;
  hash = (hash ^ hash >> 32 ^ identity.owner) * kernels::kGoldenRatio64;
  hash = (hash ^ hash >> 32 ^ identity.round) * kernels::kGoldenRatio64;
  return static_cast<std::uint8_t>(hash >> 56);
}

std::string ExplainMismatch(const Program& program, const CallIdentity& mine, Rank peer, const CallIdentity& theirs) {
  const absl::string_view kind = KindOf(program.plan);
  // Only a hash of the peer's plan is known. A difference of the plans is told only where the collectives are the same.
  std::string other;
  if ((theirs.signature & 0xff) == (mine.signature & 0xff) && HashIn(theirs.signature) != HashIn(mine.signature)) {
    const bool plain = kind == "schedule" && theirs.owner == 0;
    other = plain ? " with another schedule" : " with another schedule, algorithm, option or round of it";
  }
  const std::string own = other.empty() ? "" : absl::StrCat(" with ", kind, " ", NameOf(program.plan));
  return absl::StrCat("rank ", peer, " called ", Describe(theirs, other), " where rank ", program.plan.rank, " called ",
                      Describe(mine, own), ExplainOwners(theirs.owner, theirs.round, mine.owner, mine.round),
                      "; all ranks must make the same calls in the same order");
}

}  // namespace tutti
