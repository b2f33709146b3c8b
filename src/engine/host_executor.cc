#include "engine/host_executor.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/floating_mode.h"
#include "engine/call.h"
#include "engine/host_compute.h"
#include "engine/run_lists.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// Runs for which room is made at the start: queueing a run allocates nothing until there are more runs at once.
constexpr std::size_t kRoom = 64;
// The steps of a run touch at least this many bytes before other runs, and calls that have just been made, get their
// turn.
constexpr std::int64_t kBytesPerTurn = 1 << 20;
// Steps that touch this many bytes take about a microsecond: peers that sleep are rung before such steps.
constexpr std::int64_t kLongBytes = 4 << 10;
// Copies to scratch that touch this many bytes are measured.
constexpr std::int64_t kLongCopy = 2 * PastCacheChoice::kMinBytes;
// Looks at the first signal that a run awaits, about 0.1 µs together, before the driver rings peers that sleep and
// turns to its other duties: a peer that makes the same call at the same time often signals so soon.
constexpr int kLooks = 64;
// Further looks of a short run whose rank has a processor of its own, about 3 µs together: ten times as long as two
// ranks on different cores need for a call. A run that is given up here goes on in Engine::Drive, which costs a few
// hundred nanoseconds, so that the peer waits longer and gives up, too, in this call and in the ones after it.
constexpr int kMoreLooks = 8000;
// Where ranks share processors, a short run gives its processor away so often before it is given up: nearly always to
// the very peer that must signal, which takes its turn within a few microseconds. Few, because meanwhile this rank
// looks at no other call and no other thread of this rank can drive.
constexpr int kYields = 4;

}  // namespace

// From Begin to End, or to the end of a PeerAccess, a peer that gives the channel up waits before it gives its memory
// back: see Presence::touching.
class HostExecutor::PeerAccess {
 public:
  PeerAccess(Presence& presence, const Channel& channel) : presence_(presence), channel_(channel) {}
  ~PeerAccess() { End(); }
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

  // Must return true before a peer's memory is touched in another way than to read scratch. False when some peer has
  // given the channel up.
  bool Begin() {
    if (!begun_) presence_.touching.store(touching() + 1, std::memory_order_seq_cst);
    begun_ = true;
    return !channel_.peer_failed();
  }

  void End() {
    if (begun_) presence_.touching.store(touching() + 1, std::memory_order_release);
    begun_ = false;
  }

 private:
  // The driver alone writes the number.
  std::uint32_t touching() const { return presence_.touching.load(std::memory_order_relaxed); }

  Presence& presence_;
  const Channel& channel_;
  bool begun_ = false;
};

HostExecutor::HostExecutor(Transport& transport, Presence& presence, bool may_spin)
    : transport_(transport), presence_(presence), may_spin_(may_spin) {
  active_.reserve(kRoom);
  pending_.reserve(kRoom);
}

absl::Status HostExecutor::MakeRunnable(const Program& program) const {
  for (const Program* some : {&program, program.for_private_buffers.get()}) {
    if (some == nullptr || some->num_natives == 0) continue;
    const auto is_native = [](const Step& step) { return step.kind == StepKind::kNative; };
    const Plan& plan = some->plan;
    const auto native = std::find_if(plan.steps.begin(), plan.steps.end(), is_native);
    return absl::UnimplementedError(absl::StrCat(
        "rank ", plan.rank, ": ", plan.name, " cannot run in host memory: step ", native - plan.steps.begin(), " (",
        ToText(plan, *native), ") needs a native transport, such as NCCL on GPUs"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Run> HostExecutor::NewRun(Call& call, Channel& channel, const Program& program, void* scratch) {
  return std::make_unique<HostRun>(*this, call, channel, program, scratch);
}

void HostExecutor::Add(Run& run) {
  if (!run.call.options().background) ++in_foreground_;
  (pending_.empty() && Admit(run) ? active_ : pending_).push_back(&run);
}

bool HostExecutor::HasPending(const Channel& channel) const { return HasRunOf(channel, pending_); }

bool HostExecutor::RunAtOnce(Run& its_run) {
  HostRun& run = HostRunOf(&its_run);
  Add(run);
  const bool delayed = active_.empty() || !run.refusal.ok() || run.channel.BlockedBy(run).has_value();
  if (delayed) return false;
  Count(staged_bytes_, run.StartWithoutSteps(past_cache_));
  const StepId done = TakeStepsInOrder(run);
  const bool ended = done == run.program.instructions.size() && !run.ticket.any_private_buffers &&
                     !run.channel.peer_failed() && CheckPeersUnlessAwaited(run).ok();
  if (!ended) {
    run.BeginStepsAfter(done);
    return false;
  }
  active_.pop_back();
  Conclude(run);
  return true;
}

StepId HostExecutor::TakeStepsInOrder(HostRun& run) {
  const std::vector<Instruction>& steps = run.program.instructions;
  PeerAccess access(presence_, run.channel);
  if (run.program.touches_buffers_of_peers && !access.Begin()) return 0;
  // From the branch on the run takes another program, where buffers of some rank are private.
  const auto stops_at_branch = [&](StepId step) {
    return run.ticket.any_private_buffers && step == run.program.shared_beginning;
  };
  for (StepId step = 0; step < steps.size(); ++step) {
    if (stops_at_branch(step)) return step;
    if (steps[step].kind == StepKind::kWait) {
      if (!AwaitSignal(run, steps[step], access)) return step;
      run.channel.PrefetchScratchOf(steps[step].peer, run);
      const absl::StatusOr<Channel::Signalled> has =
          run.channel.HasSignalled(run, steps[step].peer, steps[step].ordinal);
      if (!has.ok() || *has != Channel::Signalled::kYes) return step;
    } else {
      if (steps[step].touched_bytes >= kLongBytes) run.channel.RingSleepers();
      // A peer may have given the channel up while this rank waited, or was stopped.
      const bool touches_peer = steps[step].touches_peer && run.program.touches_buffers_of_peers;
      if ((touches_peer && !access.Begin()) || !Compute(run, step).ok()) return step;
    }
    if (steps[step].kind == StepKind::kSignal) run.channel.PrefetchForNextRun(run.program);
  }
  return static_cast<StepId>(steps.size());
}

bool HostExecutor::AdmitPending() {
  std::size_t kept = 0;
  // Collectives of a channel keep their order: none overtakes one that waits for its lane.
  const auto overtakes = [&](const Run& run) {
    return !run.program.point_to_point &&
           std::any_of(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(kept), [&](const Run* before) {
             return &before->channel == &run.channel && !before->program.point_to_point;
           });
  };
  for (Run* const run : pending_) {
    if ((kept > 0 && overtakes(*run)) || !Admit(*run)) {
      pending_[kept++] = run;
    } else {
      active_.push_back(run);
    }
  }
  const bool admitted = kept < pending_.size();
  pending_.resize(kept);
  return admitted;
}

Executor::Polled HostExecutor::Poll() {
  bool moved = !pending_.empty() && AdmitPending();
  if (messages_ > 0) {
    moved |= transport_.Progress();
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_.size(); ++i) {
    HostRun& run = HostRunOf(active_[i]);
    if (run.channel.failure.begun) {
      active_[kept++] = &run;
      continue;
    }
    const Polled advanced = Advance(run);
    Channel& channel = run.channel;  // the run may be gone when it has ended
    const Polled ended = advanced == Polled::kFailed ? advanced : EndIfComplete(run);
    channel.RingSleepers();
    if (ended == Polled::kFailed) {
      // All runs that have not ended stay in active_, this one too: End ends those of the channel.
      active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(kept),
                    active_.begin() + static_cast<std::ptrdiff_t>(i));
      return ended;
    }
    moved |= advanced == Polled::kMoved || ended == Polled::kMoved;
    if (ended == Polled::kNothing) active_[kept++] = &run;
  }
  active_.resize(kept);
  return moved ? Polled::kMoved : Polled::kNothing;
}

Executor::Polled HostExecutor::EndIfComplete(HostRun& run) {
  if ((run.steps_left_ > 0 || run.at_branch()) && !run.refusal_told_) return Polled::kNothing;
  if (!run.started_ || run.messages_left_ > 0) return Polled::kNothing;
  if (run.refusal_told_ && run.channel.StillTakesPart(run.ticket).has_value()) return Polled::kNothing;
  // A peer that has given the channel up may have used its memory for something else before the steps read it.
  if (run.channel.peer_failed()) return Polled::kNothing;
  if (absl::Status status = CheckPeersUnlessAwaited(run); !status.ok()) return Fail(run, std::move(status));
  // Ranks of other nodes cannot read the refusal, and would wait for messages that do not come.
  if (run.refusal_told_ && !run.program.messages.empty() && !run.channel.maps_all_peers()) {
    return Fail(run, std::exchange(run.refusal, absl::OkStatus()));
  }
  Conclude(run);
  return Polled::kMoved;
}

absl::Status HostExecutor::CheckPeersUnlessAwaited(const HostRun& run) {
  if (run.program.num_waits > 0 || run.program.point_to_point || run.channel.size() == 1) return absl::OkStatus();
  // The fence stands between what this rank has told of its call and the loads of what peers tell: of two ranks that
  // make different calls at the same time, at least one sees the call of the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (absl::Status status = run.channel.CompareCalls(run); !status.ok()) return status;
  return run.program.uses_lane ? run.channel.CheckNobodyLeftWithout(run) : absl::OkStatus();
}

void HostExecutor::Conclude(HostRun& run) {
  if (run.memory_.stages_output()) run.channel.RingSleepers();  // so that peers do not wait for the copy below
  if (!run.refusal_told_) Count(staged_bytes_, run.memory_.CopyOut());
  Count(calls_, 1);
  run.channel.Retire(run, run.memory_.lends_scratch());
  run.channel.RingSleepers();  // before the end wakes threads of this rank, which may take the core
  if (run.refusal.ok()) {
    Finish(run, absl::OkStatus());
  } else {
    const absl::Status refusal = std::exchange(run.refusal, absl::OkStatus());
    Finish(run, refusal);
  }
}

void HostExecutor::Finish(HostRun& run, const absl::Status& status) {
  Call& call = run.call;
  if (!call.options().background) --in_foreground_;
  run.started_ = false;
  run.refusal_told_ = false;
  run.watch = {};
  call.Finish(status);
}

std::vector<Rank> HostExecutor::MessagePeers(const Channel& channel) const {
  std::vector<Rank> peers;
  for (Run* const its_run : active_) {
    if (&its_run->channel == &channel) HostRunOf(its_run).AddMessagePeers(peers);
  }
  return peers;
}

void HostExecutor::End(Channel& channel, const absl::Status& cause) {
  for (std::vector<Run*>* const list : {&active_, &pending_}) {
    for (Run* const its_run : TakeRunsOf(channel, *list)) {
      HostRun& run = HostRunOf(its_run);
      run.failed_ = true;
      run.refusal = absl::OkStatus();
      run.message_error_ = absl::OkStatus();
      channel.GiveUp(run);
      Finish(run, cause);
    }
  }
}

Executor::Polled HostExecutor::Advance(HostRun& run) {
  bool moved = false;
  if (!run.message_error_.ok()) return Fail(run, run.MessageError());
  if (!run.started_) {
    if (run.channel.BlockedBy(run).has_value()) return Polled::kNothing;
    Count(staged_bytes_, run.Start(past_cache_));
    moved = true;
  }
  const auto so_far = [&] { return moved ? Polled::kMoved : Polled::kNothing; };
  if (run.refusal_told_) return so_far();
  PeerAccess access(presence_, run.channel);
  // Begin waits until all earlier stores are done, which takes longest after a signal, so a short run calls Begin
  // before its signal.
  const bool is_short = !run.ready_.empty() && run.current->instructions[run.ready_.back()].touched_bytes < kLongBytes;
  if (is_short && run.current->touches_buffers_of_peers && !access.Begin()) return so_far();
  std::int64_t touched = 0;
  std::int64_t since_ringing = 0;
  do {
    const std::int64_t messages = messages_;
    if (run.at_branch()) {
      if (absl::Status status = run.Branch(); !status.ok()) return Fail(run, std::move(status));
    }
    if (run.refusal_told_) return Polled::kMoved;
    while (!run.ready_.empty()) {
      const StepId step = run.ready_.back();
      const Instruction& instruction = run.current->instructions[step];
      if (instruction.touches_peer && run.current->touches_buffers_of_peers && !access.Begin()) return so_far();
      // A peer that has given the channel up may have changed its memory before this rank read from it.
      if (instruction.kind == StepKind::kSend && run.channel.peer_failed()) return so_far();
      if (touched >= kBytesPerTurn) return Polled::kMoved;
      touched += instruction.touched_bytes;
      since_ringing += instruction.touched_bytes;
      if (since_ringing >= kLongBytes) {
        run.channel.RingSleepers();
        since_ringing = 0;
      }
      run.ready_.pop_back();
      if (absl::Status status = Execute(run, step); !status.ok()) return Fail(run, std::move(status));
      moved = true;
    }
    // Short sends have ended by now, and a run that waits for nothing else ends without a look at the network.
    if (messages_ > messages) transport_.CallEnded();
    if (!run.ready_.empty() || run.at_branch()) continue;
    if (run.waiting_.empty()) break;
    if (moved) LookFor(run, run.current->instructions[run.waiting_.front()], kLooks);
    if (const Polled ended = LookForSignals(run); ended != Polled::kNothing) return ended;
  } while (!run.ready_.empty() || run.at_branch());
  return so_far();
}

void HostExecutor::RefusedBy(HostRun& run, Rank peer) {
  const Rank by = run.channel.RefusedBy(run.ticket, peer);
  run.refusal = absl::ResourceExhaustedError(absl::StrCat("rank ", by, " has no room in its arena for ", run.Text(),
                                                          ", which therefore has no result on any rank"));
  run.TellRefusal(by);
}

bool HostExecutor::LookFor(const HostRun& run, const Instruction& wait, int looks) {
  for (int look = 0; look < looks; ++look) {
    if (run.channel.MayHaveSignalled(run.ticket, wait.peer, wait.ordinal)) return true;
  }
  return false;
}

bool HostExecutor::AwaitSignal(HostRun& run, const Instruction& wait, PeerAccess& access) const {
  if (LookFor(run, wait, may_spin_ ? kLooks + kMoreLooks : kLooks)) return true;
  if (may_spin_) return false;
  access.End();  // the system may run others for long before this thread goes on
  run.channel.RingSleepers();
  for (int yield = 0; yield < kYields; ++yield) {
    sched_yield();
    if (LookFor(run, wait, 1)) return true;
  }
  return false;
}

Executor::Polled HostExecutor::LookForSignals(HostRun& run) {
  const Program& program = *run.current;
  Channel& channel = run.channel;
  std::size_t kept = 0;
  for (const StepId step : run.waiting_) {
    const Instruction& wait = program.instructions[step];
    using Signalled = Channel::Signalled;
    Signalled signalled = Signalled::kNotYet;
    if (channel.MayHaveSignalled(run.ticket, wait.peer, wait.ordinal)) {
      const absl::StatusOr<Signalled> has = channel.HasSignalled(run, wait.peer, wait.ordinal);
      if (!has.ok()) return Fail(run, has.status());
      signalled = *has;
    }
    if (signalled == Signalled::kNever) {
      RefusedBy(run, wait.peer);
      return Polled::kMoved;
    }
    if (signalled == Signalled::kYes) {
      run.Complete(step);
    } else {
      run.waiting_[kept++] = step;
    }
  }
  run.waiting_.resize(kept);
  return Polled::kNothing;
}

absl::Status HostExecutor::Execute(HostRun& run, StepId step) {
  switch (run.current->instructions[step].kind) {
    case StepKind::kSend:
    case StepKind::kRecv:
      PostMessage(run, step);
      return absl::OkStatus();
    case StepKind::kWait:
      run.waiting_.push_back(step);
      return absl::OkStatus();
    default:
      if (run.current->instructions[step].reads_process && IsInProcess(run, step)) {
        if (CopyFromProcess(run, step)) break;
        return absl::OkStatus();  // the loss of the peer, or of the group, ends the run
      }
      if (absl::Status status = Compute(run, step); !status.ok()) return status;
  }
  run.Complete(step);
  return absl::OkStatus();
}

bool HostExecutor::IsInProcess(const HostRun& run, StepId step) {
  return run.in_process[static_cast<std::size_t>(OwnerOf(SourceOf(run, step).base))];
}

bool HostExecutor::CopyFromProcess(HostRun& run, StepId step) {
  const Program& program = *run.current;
  const Instruction& instruction = program.instructions[step];
  const Operand& source = SourceOf(run, step);
  const Rank peer = OwnerOf(source.base);
  const auto place = reinterpret_cast<std::uintptr_t>(run.AddressOf(source));
  const std::int64_t bytes = instruction.count * SizeOf(instruction.dst_type);
  Count(wire_bytes_, instruction.wire_bytes);
  Endpoint& endpoint = *run.channel.peer(peer).endpoint;
  // A peer that gives the call up tells it before it has its memory back: this rank may be late.
  const auto is_lent = [&run] { return !run.channel.peer_failed(); };
  if (endpoint.ReadProcess(run.AddressOf(program.dsts(instruction)[0]), place, bytes, is_lent)) return true;
  run.unread_ = peer;
  run.ready_.clear();
  return false;
}

absl::Status HostExecutor::Compute(HostRun& run, StepId step) {
  const Program& program = *run.current;
  const Instruction& instruction = program.instructions[step];
  if (instruction.kind == StepKind::kSignal) {
    run.channel.Signal(run);
    return absl::OkStatus();
  }
  const absl::Span<const Operand> dsts = program.dsts(instruction);
  const absl::Span<const Operand> srcs = program.srcs(instruction);
  for (std::size_t i = 0; i < dsts.size(); ++i) run.dsts_[i] = run.AddressOf(dsts[i]);
  for (std::size_t i = 0; i < srcs.size(); ++i) run.srcs_[i] = run.AddressOf(srcs[i]);
  if (instruction.wire_bytes != 0) Count(wire_bytes_, instruction.wire_bytes);
  // Copies of private buffers to scratch, which peers can map, count as staging.
  if (run.private_buffers && instruction.fills_scratch) {
    Count(staged_bytes_, instruction.count * SizeOf(instruction.dst_type));
  }
  if (instruction.fills_scratch && instruction.touched_bytes >= kLongCopy && dsts.size() == 1) {
    const DefaultFloatingMode mode;  // of conversions, as in every step that computes
    // Peers read nearly all scratch, and have read it in the calls before.
    past_cache_.Convert(instruction.dst_type, run.dsts_[0], instruction.src_type, run.srcs_[0], instruction.count);
    return absl::OkStatus();
  }
  const std::uint64_t draw = instruction.kind == StepKind::kEncode ? DrawOf(run, step) : 0;
  return tutti::Compute(program, instruction, absl::MakeConstSpan(run.dsts_).first(dsts.size()),
                        absl::MakeConstSpan(run.srcs_).first(srcs.size()), draw, run.call.options().factor);
}

void HostExecutor::PostMessage(HostRun& run, StepId step) {
  const Instruction& instruction = run.current->instructions[step];
  const std::uint64_t tag = run.channel.TagOf(run, instruction);
  std::byte* const memory = run.AddressOf(run.current->operands[instruction.first_operand]);
  ++messages_;
  ++run.messages_left_;
  HostRun::Message& message = run.messages_[step];
  message.under_way = true;
  message.source = kAnySource;
  Count(wire_bytes_, instruction.wire_bytes);
  if (instruction.peer == kAnySource) return transport_.RecvFromAny(tag, memory, instruction.bytes, &message);
  Endpoint& endpoint = *run.channel.peer(instruction.peer).endpoint;
  if (instruction.kind == StepKind::kSend) {
    endpoint.Send(tag, memory, instruction.bytes, &message);
  } else {
    endpoint.Recv(tag, memory, instruction.bytes, &message);
  }
}

void HostExecutor::OnMessage(Completion* completion, const absl::Status& status) {
  auto& message = *static_cast<HostRun::Message*>(completion);
  HostRun& run = *message.run;
  HostExecutor& executor = run.executor_;
  --executor.messages_;
  --run.messages_left_;
  message.under_way = false;
  if (status.ok() && run.channel.peer_failed()) {
    // The sender may have given the channel up, and used the memory from which the message was read for something else.
    if (run.message_error_.ok()) run.message_error_ = run.channel.FailureOfPeer();
  } else if (status.ok()) {
    if (run.program.point_to_point) {
      run.call.SetSource(run.channel.PeerOf(run.program.instructions[message.step], message.source));
    }
    run.Complete(message.step);
  } else if (run.message_error_.ok()) {
    run.message_error_ = status;
  }
}

bool HostExecutor::Uses(const Channel& channel) const {
  return HasRunOf(channel, active_) || HasRunOf(channel, pending_);
}

bool HostExecutor::needs_driver() const {
  const auto needs = [](const Run* run) { return !run->call.options().caller_drives || run->call.awaited(); };
  return std::any_of(active_.begin(), active_.end(), needs) || std::any_of(pending_.begin(), pending_.end(), needs);
}

bool HostExecutor::waits_for_signals() const {
  return std::any_of(active_.begin(), active_.end(), [](Run* its_run) {
    const HostRun& run = HostRunOf(its_run);
    return !run.started_ || run.refusal_told_ || !run.waiting_.empty() || run.unread_.has_value();
  });
}

bool HostExecutor::waits_for_completions() const {
  return std::any_of(active_.begin(), active_.end(), [](Run* its_run) {
    const HostRun& run = HostRunOf(its_run);
    return !run.started_ || run.refusal_told_;
  });
}

}  // namespace tutti
