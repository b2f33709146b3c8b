#include "engine/host_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/call.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "engine/host_executor.h"

namespace tutti {

HostRun::HostRun(HostExecutor& executor, Call& its_call, Channel& its_channel, const Program& its_program,
                 void* scratch)
    : Run(its_call, its_channel, its_program),
      executor_(executor),
      memory_(its_program, its_channel.arena(), its_channel.engine().transport(), scratch),
      lent_(its_channel.lent()),
      borrowers_(its_channel.borrowers()) {
  MakeRoomFor(program);
  if (program.for_private_buffers != nullptr) MakeRoomFor(*program.for_private_buffers);
}

void HostRun::MakeRoomFor(const Program& some) {
  dependencies_left_.reserve(some.instructions.size());
  ready_.reserve(some.instructions.size());
  waiting_.reserve(some.num_waits);
  for (const Instruction& instruction : some.instructions) {
    dsts_.resize(std::max<std::size_t>(dsts_.size(), instruction.num_dsts));
    srcs_.resize(std::max<std::size_t>(srcs_.size(), instruction.num_srcs));
  }
  const auto num_steps = static_cast<StepId>(some.instructions.size());
  for (StepId step = 0; step < num_steps; ++step) {
    const StepKind kind = some.instructions[step].kind;
    if (kind != StepKind::kSend && kind != StepKind::kRecv) continue;
    messages_.resize(std::max<std::size_t>(messages_.size(), num_steps));
    messages_[step].run = this;
    messages_[step].step = step;
    messages_[step].done = &HostExecutor::OnMessage;
  }
}

HostRun::~HostRun() {
  if (failed_) {
    memory_.GiveBackAfterFailure(*lent_, borrowers_);
  } else {
    memory_.GiveBack(*lent_, borrowers_, ticket.lent_lane, ticket.lent_run);
  }
}

absl::Status HostRun::SetBuffers(const void* in, void* out, void* state) {
  if (failed_) return absl::OkStatus();  // no run follows, and peers may still touch the memory of the last one
  absl::Status status = memory_.SetBuffers(in, out, state, bases);
  private_buffers = memory_.private_buffers();
  return status;
}

absl::Status HostRun::WaitOnStream(CUstream_st* /*stream*/) {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", program.plan.rank, ": ", What(),
                   " works on host memory, for which no stream can wait: wait for it with Work::Wait"));
}

absl::Span<std::byte> HostRun::output_lent_to_peers() const {
  // Only the caller's own memory counts: staging is not used again after a failure. The memory counts also before the
  // branch, because a peer may know already that no buffers are private, and write.
  const bool lent =
      started_ && current->uses_lane && current->shares_io && !memory_.stages_output() && !private_buffers;
  if (!lent) return {};
  return {bases[static_cast<std::size_t>(Space::kOut)], static_cast<std::size_t>(program.plan.out_bytes)};
}

void HostRun::Begin() {
  current = &program;
  started_ = true;
  messages_left_ = 0;
  unread_ = std::nullopt;
  SetScratch();
}

std::int64_t HostRun::Start(PastCacheChoice& past_cache) {
  Begin();
  if (!refusal.ok()) {
    TellRefusal(channel.rank());
    return 0;
  }
  BeginStepsAfter(0);
  return memory_.CopyIn(past_cache);
}

std::int64_t HostRun::StartWithoutSteps(PastCacheChoice& past_cache) {
  Begin();
  return memory_.CopyIn(past_cache);
}

void HostRun::BeginStepsAfter(StepId taken) {
  const bool has_branch = program.for_private_buffers != nullptr && taken <= program.shared_beginning;
  beginning_left_ = has_branch ? program.shared_beginning - taken : kNoBranch;
  TakeUp(program, taken);
}

absl::Status HostRun::Branch() {
  beginning_left_ = kNoBranch;
  if (!ticket.any_private_buffers) {
    TakeUp(program, program.shared_beginning);
    return absl::OkStatus();
  }
  const Program* const other = program.for_private_buffers.get();
  if (other->reads_processes) {
    current = other;
    if (absl::Status status = channel.FindBuffersOfPeers(*this); !status.ok()) return status;
  } else if (absl::Status status = memory_.MakeRoomForPrivateBuffers(); !status.ok()) {
    refusal = std::move(status);
    TellRefusal(channel.rank());
    return absl::OkStatus();
  } else {
    const std::byte* const before = bases[static_cast<std::size_t>(Space::kScratch)];
    SetScratch();
    std::byte* const scratch = bases[static_cast<std::size_t>(Space::kScratch)];
    // The bytes that the shared beginning has written to scratch move along: later steps may read them.
    if (before != scratch) std::memcpy(scratch, before, static_cast<std::size_t>(program.plan.scratch_bytes));
    channel.GoOver(*this);
    current = other;
  }
  TakeUp(*current, program.shared_beginning);
  return absl::OkStatus();
}

void HostRun::SetScratch() {
  std::byte* const scratch = memory_.scratch();
  bases[static_cast<std::size_t>(Space::kScratch)] =
      scratch != nullptr ? scratch : channel.LaneScratch(ticket, program);
}

void HostRun::TakeUp(const Program& some, StepId taken) {
  dependencies_left_.assign(some.dependency_counts.begin(), some.dependency_counts.end());
  steps_left_ = static_cast<std::uint32_t>(dependencies_left_.size());
  output_steps_left_ = some.output_steps;
  waiting_.clear();
  ready_.assign(some.initially_ready.begin(), some.initially_ready.end());
  const StepId beginning_left = std::exchange(beginning_left_, kNoBranch);
  for (StepId step = 0; step < taken; ++step) Complete(step);
  beginning_left_ = beginning_left;
  std::erase_if(ready_, [this](StepId step) { return dependencies_left_[step] == kStepDone || !MayBegin(step); });
}

void HostRun::TellRefusal(Rank by) {
  channel.Refuse(ticket, by);
  refusal_told_ = true;
  ready_.clear();
  waiting_.clear();
}

void HostRun::Complete(StepId step) {
  const Instruction& instruction = current->instructions[step];
  --steps_left_;
  dependencies_left_[step] = kStepDone;
  if (instruction.touches_output && current->output_steps > 0 && --output_steps_left_ == 0) call.MarkOutputFinal();
  // Backwards, so that the earliest step of the plan is on top of the stack.
  for (std::uint32_t i = instruction.num_successors; i-- > 0;) {
    const StepId successor = current->successors[instruction.first_successor + i];
    if (--dependencies_left_[successor] == 0 && MayBegin(successor)) ready_.push_back(successor);
  }
  if (beginning_left_ != kNoBranch) --beginning_left_;
}

absl::Status HostRun::MessageError() const {
  if (!absl::IsInvalidArgument(message_error_)) return message_error_;
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", channel.peer(channel.rank()).world_rank, " in ", Text(), ": ", message_error_.message()));
}

void HostRun::AddMessagePeers(std::vector<Rank>& peers) const {
  for (const Message& message : messages_) {
    if (!message.under_way) continue;
    peers.push_back(channel.PeerOf(current->instructions[message.step], message.source));
  }
}

std::optional<Blocker> HostRun::FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const {
  Blocker found;
  const auto is = [&](const Blocker& blocker) {
    found = blocker;
    return matches(blocker);
  };
  const auto is_peer = [&](std::optional<Rank> peer, absl::string_view what) {
    return peer.has_value() && is({.peer = *peer, .what = what});
  };
  const auto is_any = [&] {
    if (!started_) return is_peer(channel.BlockedBy(*this), "its start (its previous call is not complete)");
    if (unread_.has_value()) return is_peer(unread_, "a copy from its memory, which cannot be read");
    if (refusal_told_) return is_peer(channel.StillTakesPart(ticket), "its end (a rank has no memory for the call)");
    for (const StepId step : waiting_) {
      if (is({.peer = current->instructions[step].peer, .what = Name(StepKind::kWait), .step = step})) return true;
    }
    for (const StepKind kind : {StepKind::kRecv, StepKind::kSend}) {
      for (StepId step = 0; messages_left_ > 0 && step < current->instructions.size(); ++step) {
        const Instruction& instruction = current->instructions[step];
        // For a complete step, dependencies_left_ holds kStepDone and not 0.
        if (instruction.kind != kind || dependencies_left_[step] != 0) continue;
        if (is({.peer = instruction.peer, .what = Name(kind), .step = step})) return true;
      }
    }
    for (StepId step = 0; current->num_waits > 0 && step < current->instructions.size(); ++step) {
      const Instruction& wait = current->instructions[step];
      const bool ahead = wait.kind == StepKind::kWait && dependencies_left_[step] != 0 &&
                         dependencies_left_[step] != kStepDone &&
                         !channel.MayHaveSignalled(ticket, wait.peer, wait.ordinal);
      if (!ahead) continue;
      if (is({.peer = wait.peer, .what = Name(StepKind::kWait), .step = step, .is_ahead = true})) return true;
    }
    return false;
  };
  return is_any() ? std::optional(found) : std::nullopt;
}

}  // namespace tutti
