#include "engine/executor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"

namespace tutti {
namespace {

// Stands in Operation::dependencies_left for a step that is complete.
constexpr std::uint32_t kStepDone = 0xffffffff;

// Names the random numbers of a message that a codec rounds at random: those of every rank, step and draw differ.
std::uint64_t DrawOf(const Operation& operation, StepId step) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  const auto rank = static_cast<std::uint64_t>(operation.program().plan.rank);
  return (operation.draw * kOdd + rank) * kOdd + step;
}

std::byte* AddressOf(const Operation& operation, const Operand& operand) {
  return operation.bases[operand.base] + operand.offset;
}

}  // namespace

void Executor::Add(Operation* operation) { pending_.push_back(operation); }

bool Executor::AdmitPending() {
  bool admitted = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    Operation* operation = pending_[i];
    // Collectives of a channel keep their order: none overtakes one that waits for its lane.
    const bool overtakes =
        !operation->program().point_to_point &&
        std::any_of(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(kept),
                    [&](const Operation* before) {
                      return &before->channel == &operation->channel && !before->program().point_to_point;
                    });
    if (!overtakes && operation->channel.Admit(*operation)) {
      active_.push_back(operation);
      admitted = true;
    } else {
      pending_[kept++] = operation;
    }
  }
  pending_.resize(kept);
  return admitted;
}

absl::StatusOr<bool> Executor::Poll() {
  bool moved = !pending_.empty() && AdmitPending();
  if (messages_ > 0) {
    message_completed_ = false;
    transport_.Progress();
    moved |= message_completed_;
    if (!message_error_.ok()) return message_error_;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    Operation* operation = active_[i];
    absl::StatusOr<bool> advanced = Advance(*operation);
    if (!advanced.ok()) {
      // Keep the list whole: EndAll ends every operation on it.
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(kept),
                    active_.begin() + static_cast<std::ptrdiff_t>(i));
      return advanced.status();
    }
    moved |= *advanced;
    if (operation->running && operation->steps_left == 0 && operation->messages_left == 0) {
      operation->CopyOut();
      operation->channel.Retire(*operation);
      calls_.fetch_add(1, std::memory_order_relaxed);
      operation->Finish();
      moved = true;
    } else {
      active_[kept++] = operation;
    }
  }
  active_.resize(kept);
  return moved;
}

void Executor::EndAll() {
  for (std::vector<Operation*>* list : {&active_, &pending_}) {
    for (Operation* operation : *list) {
      operation->running = false;
      operation->channel.Retire(*operation);
      operation->Finish();
    }
    list->clear();
  }
  messages_ = 0;
}

absl::StatusOr<bool> Executor::Advance(Operation& operation) {
  bool moved = false;
  if (!operation.running) {
    if (operation.channel.BlockedBy(operation).has_value()) return false;
    operation.PrepareRun();
    operation.CopyIn();
    operation.running = true;
    moved = true;
  }
  do {
    while (!operation.ready.empty()) {
      const StepId id = operation.ready.back();
      operation.ready.pop_back();
      if (absl::Status status = Execute(operation, id); !status.ok()) return status;
      moved = true;
    }
    std::size_t kept = 0;
    for (const StepId id : operation.waiting) {
      const Instruction& wait = operation.program().instructions[id];
      absl::StatusOr<bool> signalled = operation.channel.HasSignalled(operation, wait.peer, wait.ordinal);
      if (!signalled.ok()) return signalled.status();
      if (*signalled) {
        Complete(operation, id);
      } else {
        operation.waiting[kept++] = id;
      }
    }
    operation.waiting.resize(kept);
  } while (!operation.ready.empty());
  return moved;
}

absl::Status Executor::Execute(Operation& operation, StepId id) {
  const Program& program = operation.program();
  const Instruction& instruction = program.instructions[id];
  switch (instruction.kind) {
    case StepKind::kSend:
    case StepKind::kRecv: {
      Endpoint& endpoint = *operation.channel.peer(instruction.peer).endpoint;
      const std::uint64_t tag = operation.channel.TagOf(operation, instruction);
      Completion* const completion = &operation.completions[id];
      ++messages_;
      ++operation.messages_left;
      wire_bytes_.fetch_add(instruction.wire_bytes, std::memory_order_relaxed);
      std::byte* const memory = AddressOf(operation, program.operands[instruction.first_operand]);
      if (instruction.kind == StepKind::kSend) {
        endpoint.Send(tag, memory, instruction.bytes, completion);
      } else {
        endpoint.Recv(tag, memory, instruction.bytes, completion);
      }
      return absl::OkStatus();
    }
    case StepKind::kWait:
      operation.waiting.push_back(id);
      return absl::OkStatus();
    case StepKind::kSignal:
      operation.channel.Signal(operation);
      break;
    default:
      if (absl::Status status = Compute(operation, id); !status.ok()) return status;
  }
  Complete(operation, id);
  return absl::OkStatus();
}

absl::Status Executor::Compute(Operation& operation, StepId id) {
  const Program& program = operation.program();
  const Instruction& instruction = program.instructions[id];
  const absl::Span<const Operand> dst_operands = program.dsts(instruction);
  const absl::Span<const Operand> src_operands = program.srcs(instruction);
  for (std::size_t i = 0; i < dst_operands.size(); ++i) operation.dsts[i] = AddressOf(operation, dst_operands[i]);
  for (std::size_t i = 0; i < src_operands.size(); ++i) operation.srcs[i] = AddressOf(operation, src_operands[i]);
  const absl::Span<void* const> dsts = absl::MakeConstSpan(operation.dsts).first(dst_operands.size());
  const absl::Span<const void* const> srcs = absl::MakeConstSpan(operation.srcs).first(src_operands.size());
  const kernels::Stores stores = instruction.streaming ? kernels::Stores::kStreaming : kernels::Stores::kCached;
  if (instruction.wire_bytes != 0) wire_bytes_.fetch_add(instruction.wire_bytes, std::memory_order_relaxed);
  switch (instruction.kind) {
    case StepKind::kReduce:
      if (instruction.src_type != instruction.dst_type) {
        kernels::ReduceAndRound(instruction.dst_type, instruction.op, instruction.divisor, dsts, srcs,
                                instruction.count, stores);
        return absl::OkStatus();
      }
      kernels::Reduce(instruction.dst_type, instruction.op, instruction.divisor, dsts, srcs, instruction.count, stores);
      return absl::OkStatus();
    case StepKind::kCopy:
      for (void* dst : dsts) {
        kernels::Convert(instruction.dst_type, dst, instruction.src_type, srcs[0], instruction.count, stores);
      }
      return absl::OkStatus();
    case StepKind::kScale:
      kernels::Divide(instruction.dst_type, dsts[0], srcs[0], instruction.divisor, instruction.count);
      return absl::OkStatus();
    case StepKind::kCombine:
      kernels::Combine(instruction.dst_type, dsts[0], srcs,
                       program.plan.coefficients.data() + instruction.first_coefficient, instruction.count,
                       instruction.finite ? kernels::Results::kFinite : kernels::Results::kAll);
      return absl::OkStatus();
    case StepKind::kEncode: {
      const CodecChoice& choice = program.plan.codecs[instruction.codec];
      choice.codec->encode({static_cast<const float*>(srcs[0]), static_cast<std::size_t>(instruction.count)},
                           choice.options, DrawOf(operation, id),
                           {static_cast<std::uint8_t*>(dsts[0]), static_cast<std::size_t>(instruction.bytes)});
      return absl::OkStatus();
    }
    case StepKind::kDecode: {
      const CodecChoice& choice = program.plan.codecs[instruction.codec];
      return choice.codec->decode(
          {static_cast<const std::uint8_t*>(srcs[0]), static_cast<std::size_t>(instruction.bytes)}, choice.options,
          instruction.accumulate, {static_cast<float*>(dsts[0]), static_cast<std::size_t>(instruction.count)});
    }
    default:
      return absl::InternalError(absl::StrCat("step of kind ", Name(instruction.kind), " does not compute"));
  }
}

void Executor::Complete(Operation& operation, StepId id) {
  const Program& program = operation.program();
  const Instruction& instruction = program.instructions[id];
  --operation.steps_left;
  operation.dependencies_left[id] = kStepDone;
  if (instruction.touches_output && program.output_steps > 0) operation.CountOutputStep();
  // Backwards, so that the earliest step of the plan is on top of the stack.
  for (std::uint32_t i = instruction.num_successors; i-- > 0;) {
    const StepId successor = program.successors[instruction.first_successor + i];
    if (--operation.dependencies_left[successor] == 0) operation.ready.push_back(successor);
  }
}

void Executor::OnMessage(Operation::MessageCompletion& completion, const absl::Status& status) {
  --messages_;
  message_completed_ = true;
  Operation& operation = *completion.operation;
  --operation.messages_left;
  if (status.ok()) {
    Complete(operation, completion.step);
  } else if (message_error_.ok()) {
    message_error_ = status;
  }
}

bool Executor::Uses(const Channel& channel) const {
  const auto is_its = [&](const Operation* operation) { return &operation->channel == &channel; };
  return std::any_of(active_.begin(), active_.end(), is_its) || std::any_of(pending_.begin(), pending_.end(), is_its);
}

bool Executor::waits_for_signals() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const Operation* operation) { return !operation->running || !operation->waiting.empty(); });
}

bool Executor::all_in_background() const {
  const auto is = [](const Operation* operation) { return operation->background; };
  return std::all_of(active_.begin(), active_.end(), is) && std::all_of(pending_.begin(), pending_.end(), is);
}

std::optional<Blocker> Executor::BlockerOf(Operation& operation) {
  const Program& program = operation.program();
  if (!operation.running) {
    const std::optional<Rank> peer = operation.channel.BlockedBy(operation);
    if (!peer.has_value()) return std::nullopt;
    return Blocker{*peer, "start (its previous call is not complete)"};
  }
  if (!operation.waiting.empty()) {
    const StepId id = operation.waiting.front();
    return Blocker{program.instructions[id].peer, absl::StrCat("step ", id, " (wait)")};
  }
  // Of the messages under way, the earliest step whose dependencies are complete and which itself is not: receives name
  // the rank that has not sent, and so are looked at first.
  for (const StepKind kind : {StepKind::kRecv, StepKind::kSend}) {
    for (StepId id = 0; id < program.instructions.size(); ++id) {
      const Instruction& instruction = program.instructions[id];
      if (instruction.kind != kind || operation.dependencies_left[id] != 0) continue;
      return Blocker{instruction.peer, absl::StrCat("step ", id, " (", Name(kind), ")")};
    }
  }
  return std::nullopt;
}

}  // namespace tutti
