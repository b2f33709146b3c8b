#include "engine/stream_executor.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/call.h"
#include "engine/hang.h"
#include "engine/run_lists.h"
#include "kernels/device_kernels.h"
#include "kernels/operand_list.h"
#include "memory/stuck_devices.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// The time that the native transport has to give up what is on a stream.
constexpr absl::Duration kAbortTime = absl::Seconds(2);
// The runs of a channel that are enqueued at a time: fewer than the calls of which peers see what was called
// (kCallRecords). And their launches: a stream that is full lets the host wait for the device.
constexpr std::size_t kMaxRuns = 100;
constexpr std::size_t kMaxLaunches = 512;

bool IsNative(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kRecv || kind == StepKind::kNative; }

// Loads the kernels of `program`. The driver must not: it would wait, with everybody who waits for it, for what is on
// the device, and with that for other ranks, whose death it could not see.
absl::Status LoadKernels(const StreamDevice& device, const Program& program) {
  // Nobody looks there. A copy to its own place would be no launch.
  std::byte places[2];
  const std::vector<void*> dsts(kernels::kMaxOperands, &places[0]);
  const std::vector<const void*> srcs(kernels::kMaxOperands, &places[1]);
  std::vector<DeviceStep> steps;
  auto recode = program.recodes.begin();
  for (std::size_t i = 0; i < program.stream_order->size();) {
    const bool recodes = recode != program.recodes.end() && recode->begin == i;
    const std::size_t end = recodes ? (recode++)->end : i + 1;
    steps.clear();
    for (; i < end; ++i) {
      for (const StepId step : program.stream_order->launch(i)) {
        const Instruction& instruction = program.instructions[step];
        steps.push_back({.program = &program,
                         .instruction = &instruction,
                         .dsts = absl::MakeConstSpan(dsts).first(instruction.num_dsts),
                         .srcs = absl::MakeConstSpan(srcs).first(instruction.num_srcs),
                         .draw = 0,
                         .factor = 1,
                         .error = nullptr});
      }
    }
    if (IsNative(steps[0].instruction->kind)) continue;
    absl::Status loaded =
        recodes ? device.recode(steps, kernels::LoadingStream()) : device.compute(steps, kernels::LoadingStream());
    if (!loaded.ok()) return loaded;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamExecutor::MakeRunnable(const Program& program) const {
  static_assert(kernels::kMaxOperands == 128);  // the number in the text
  const Plan& plan = program.plan;
  for (StepId id = 0; id < plan.steps.size(); ++id) {
    const Step& step = plan.steps[id];
    absl::string_view why;
    const bool codes = step.kind == StepKind::kEncode || step.kind == StepKind::kDecode;
    if (codes && plan.codecs[step.codec].codec->layout == nullptr) why = "has a codec without kernels for GPUs";
    const bool combines = step.kind == StepKind::kReduce || step.kind == StepKind::kCombine;
    if (combines && std::max(step.num_srcs, step.num_dsts) > kernels::kMaxOperands) {
      why = "has more operands than kernels for GPUs take, 128";
    }
    if (why.empty()) continue;
    return absl::UnimplementedError(absl::StrCat("rank ", plan.rank, ": ", plan.name, " cannot run on a stream: step ",
                                                 id, " (", ToText(plan, step), ") ", why));
  }
  if (program.takes_messages) return absl::OkStatus();
  const CudaDeviceScope scope(*device_.cuda, device_.index);
  const CudaOutsideCapture outside(*device_.cuda);
  absl::Status status = CudaStatus(*device_.cuda, scope.error(), "to use the device");
  if (status.ok()) status = LoadKernels(device_, program);
  return status.ok()
             ? status
             : absl::Status(status.code(), absl::StrCat("rank ", plan.rank, ": ", plan.name, ": ", status.message()));
}

std::unique_ptr<Run> StreamExecutor::NewRun(Call& call, Channel& channel, const Program& program, void* /*scratch*/) {
  return std::make_unique<StreamRun>(device_, call, channel, program);
}

void StreamExecutor::Add(Run& run) {
  if (!run.call.options().background) ++in_foreground_;
  (HasPending(run.channel) || !Admit(run) ? pending_ : active_).push_back(&run);
}

bool StreamExecutor::HasPending(const Channel& channel) const { return HasRunOf(channel, pending_); }

bool StreamExecutor::Admit(Run& run) const {
  if (run.channel.failure.begun) return false;
  std::size_t runs = 0;
  std::size_t launches = run.program.stream_order->size();
  for (const Run* const other : active_) {
    if (&other->channel != &run.channel || StreamRunOf(other).captured_) continue;
    ++runs;
    launches += other->program.stream_order->size();
  }
  const bool has_room = runs == 0 || (runs < kMaxRuns && launches <= kMaxLaunches);
  return has_room && run.channel.Admit(run);
}

bool StreamExecutor::RunAtOnce(Run& run) {
  Add(run);
  return false;
}

Executor::Polled StreamExecutor::Poll() {
  if (idle()) return Polled::kNothing;
  const CudaDeviceScope scope(*device_.cuda, device_.index);
  const CudaOutsideCapture outside(*device_.cuda);
  bool moved = false;
  const auto lists = [this](const Channel& channel) {
    return std::find(channels_.begin(), channels_.end(), &channel) != channels_.end();
  };
  channels_.clear();  // those whose oldest pending run has no room
  std::erase_if(pending_, [&](Run* run) {
    if (lists(run->channel)) return false;
    const bool admitted = Admit(*run);
    if (admitted) {
      active_.push_back(run);
    } else {
      channels_.push_back(&run->channel);
    }
    moved |= admitted;
    return admitted;
  });
  // Ends come before beginnings: the device has hardly come to the end of what has just been enqueued.
  ended_.clear();
  channels_.clear();  // those whose stream has not come to the end of their oldest run, nor then to that of a later one
  for (Run* const its_run : active_) {
    StreamRun& run = StreamRunOf(its_run);
    if (run.channel.failure.begun || run.stage_ != StreamRun::Stage::kEnqueued) continue;
    if (!run.captured_ && lists(run.channel)) continue;
    const Polled polled = EndIfReached(run);
    if (polled == Polled::kFailed) return polled;
    if (polled == Polled::kMoved) {
      ended_.push_back(its_run);
    } else if (!run.captured_) {
      channels_.push_back(&run.channel);
    }
  }
  channels_.clear();  // those whose oldest run that is not enqueued cannot go on
  for (Run* const its_run : active_) {
    StreamRun& run = StreamRunOf(its_run);
    if (run.channel.failure.begun || run.stage_ == StreamRun::Stage::kEnqueued || lists(run.channel)) continue;
    const Polled polled =
        scope.error() == kCudaSuccess ? Enqueue(run) : Fail(run, StatusOf(scope.error(), run, "to use the device"));
    if (polled == Polled::kFailed) return polled;
    moved |= polled == Polled::kMoved;
    if (run.stage_ != StreamRun::Stage::kEnqueued) channels_.push_back(&run.channel);
  }
  std::erase_if(active_, [&](Run* run) { return std::find(ended_.begin(), ended_.end(), run) != ended_.end(); });
  // The call may go to its pool, and be submitted again, as soon as Finish tells its end.
  for (Run* const run : ended_) Finish(StreamRunOf(run), absl::OkStatus());
  return moved || !ended_.empty() ? Polled::kMoved : Polled::kNothing;
}

Executor::Polled StreamExecutor::Enqueue(StreamRun& run) {
  bool moved = false;
  while (run.stage_ != StreamRun::Stage::kEnqueued) {
    // What was enqueued before may not be on the stream yet.
    const absl::StatusOr<bool> ready = run.channel.on_device()->Ready();
    if (!ready.ok()) return FailByNative(run, ready.status());
    if (!*ready) return moved ? Polled::kMoved : Polled::kNothing;
    absl::Status status;
    if (run.stage_ == StreamRun::Stage::kQueued) status = Begin(run);
    if (status.ok()) status = run.next_launch_ < run.launches() ? LaunchNext(run) : MarkEnd(run);
    if (!status.ok()) return FailByNative(run, status);
    moved = true;
  }
  return Polled::kMoved;
}

absl::Status StreamExecutor::Begin(StreamRun& run) {
  const CudaRuntime& cuda = *device_.cuda;
  run.stage_ = StreamRun::Stage::kBegun;
  run.next_launch_ = 0;
  run.next_recode_ = 0;
  ChannelOnDevice& on_device = *run.channel.on_device();
  if (on_device.graph_has_failed()) return GraphHasFailed(run);
  run.stream_ = on_device.stream();
  run.word_ = run.error_;
  run.word_here_ = run.error_here_;
  if (run.captured_) {
    const absl::StatusOr<ChannelOnDevice::ForGraphs> for_graphs = on_device.ForCapture(run.capture_id_);
    if (!for_graphs.ok()) return for_graphs.status();
    run.stream_ = for_graphs->stream;
    run.word_ = for_graphs->error;
    run.word_here_ = for_graphs->error_here;
  }
  absl::Status status = StatusOf(cuda.wait_event(run.stream_, run.input_ready_), run, "to wait for the input");
  // The word of graphs keeps its error.
  if (!status.ok() || !run.decodes_ || run.captured_) return status;
  return StatusOf(cuda.fill_async(run.word_, 0, sizeof *run.word_, run.stream_), run, "to clear the error word");
}

absl::Status StreamExecutor::LaunchNext(StreamRun& run) {
  if (run.program.takes_messages) return LaunchMessages(run);
  const std::vector<Recode>& recodes = run.program.recodes;
  if (run.next_recode_ < recodes.size() && recodes[run.next_recode_].begin == run.next_launch_) {
    const Recode& recode = recodes[run.next_recode_++];
    run.next_launch_ = recode.end;
    ListSteps(run, run.StepsOf(recode));
    return device_.recode(run.steps_, run.stream_);
  }
  const absl::Span<const StepId> steps = run.program.stream_order->launch(run.next_launch_++);
  if (IsNative(run.program.instructions[steps[0]].kind)) return LaunchNative(run, steps);
  ListSteps(run, steps);
  return device_.compute(run.steps_, run.stream_);
}

absl::Status StreamExecutor::LaunchMessages(StreamRun& run) {
  ++run.next_launch_;
  for (const StreamRun::CopyToSelf& copy : run.given_to_self_) {
    if (copy.bytes == 0) continue;
    absl::Status status =
        StatusOf(device_.cuda->copy_async(copy.dst, copy.src, copy.bytes, run.stream_), run, "a copy");
    if (!status.ok()) return status;
  }
  for (const NativeCall& call : run.given_) {
    if (call.collective == Collective::kSend) Count(wire_bytes_, call.count);
  }
  return run.given_.empty() ? absl::OkStatus() : run.channel.on_device()->native()->Enqueue(run.given_, run.stream_);
}

NativeCall StreamExecutor::NativeCallOf(const StreamRun& run, const Instruction& instruction) {
  const Program& program = run.program;
  NativeCall call = {.collective = instruction.collective,
                     .dtype = instruction.num_dsts > 0 ? instruction.dst_type : instruction.src_type,
                     .op = instruction.op,
                     .count = instruction.count,
                     .root = std::max(instruction.peer, 0)};
  // A rank that only gives, or only gets, has one operand.
  if (instruction.num_srcs > 0) call.src = run.AddressOf(program.srcs(instruction)[0]);
  if (instruction.num_dsts > 0) call.dst = run.AddressOf(program.dsts(instruction)[0]);
  return call;
}

absl::Status StreamExecutor::LaunchNative(StreamRun& run, absl::Span<const StepId> steps) {
  const ChannelOnDevice& on_device = *run.channel.on_device();
  NativeTransport* native = on_device.native();
  run.natives_.clear();
  for (const StepId step : steps) {
    const Instruction& instruction = run.program.instructions[step];
    NativeCall& call = run.natives_.emplace_back();
    Count(wire_bytes_, instruction.wire_bytes);
    if (instruction.kind == StepKind::kNative) {
      const Plan& plan = run.program.plan;
      native = on_device.NativeOf(plan.group_of(plan.steps[step]));
      if (native == nullptr) {
        return absl::FailedPreconditionError(absl::StrCat("rank ", plan.rank, ": the group of step ", step, " of ",
                                                          run.Text(), " has no native transport: bind the plan"));
      }
      call = NativeCallOf(run, instruction);
      continue;
    }
    std::byte* const memory = run.AddressOf(run.program.operands[instruction.first_operand]);
    const bool sends = instruction.kind == StepKind::kSend;
    call.collective = sends ? Collective::kSend : Collective::kRecv;
    // Bytes: messages of every type travel, also of those that the transport cannot add.
    call.dtype = DType::kU8;
    call.count = instruction.bytes;
    call.root = instruction.peer;
    if (sends) {
      call.src = memory;
    } else {
      call.dst = memory;
    }
  }
  return native->Enqueue(run.natives_, run.stream_);
}

void StreamExecutor::ListSteps(StreamRun& run, absl::Span<const StepId> steps) {
  const Program& program = run.program;
  run.dsts_.clear();
  run.srcs_.clear();
  run.steps_.clear();
  for (const StepId step : steps) {
    const Instruction& instruction = program.instructions[step];
    const std::size_t first_dst = run.dsts_.size();
    const std::size_t first_src = run.srcs_.size();
    for (const Operand& operand : program.dsts(instruction)) run.dsts_.push_back(run.AddressOf(operand));
    for (const Operand& operand : program.srcs(instruction)) run.srcs_.push_back(run.AddressOf(operand));
    run.steps_.push_back({.program = &program,
                          .instruction = &instruction,
                          .dsts = absl::MakeConstSpan(run.dsts_.data() + first_dst, instruction.num_dsts),
                          .srcs = absl::MakeConstSpan(run.srcs_.data() + first_src, instruction.num_srcs),
                          .draw = instruction.kind == StepKind::kEncode ? DrawOf(run, step) : 0,
                          .factor = run.call.options().factor,
                          .error = run.word_});
  }
}

absl::Status StreamExecutor::MarkEnd(StreamRun& run) {
  const CudaRuntime& cuda = *device_.cuda;
  absl::Status status;
  if (run.decodes_) {
    status = StatusOf(cuda.copy_async(run.word_here_, run.word_, sizeof *run.word_, run.stream_), run,
                      "to read the error word");
  }
  if (status.ok()) status = StatusOf(cuda.record_event(run.end_, run.stream_), run, "to mark the end");
  if (!status.ok()) return status;
  run.stage_ = StreamRun::Stage::kEnqueued;
  run.call.MarkEnqueued();
  return absl::OkStatus();
}

// A run in a graph ends when all ranks have made the call: what is on the device belongs to the graph from then on.
Executor::Polled StreamExecutor::EndIfCaptured(const StreamRun& run) {
  if (run.channel.peer_failed()) return Polled::kNothing;
  if (absl::Status calls = run.channel.CompareCalls(run); !calls.ok()) return Fail(run, std::move(calls));
  // A peer that has closed its channel counts as one that has called, unless it is asked.
  if (!run.program.point_to_point) {
    if (absl::Status left = run.channel.CheckNobodyLeftWithout(run); !left.ok()) return Fail(run, std::move(left));
  }
  const bool all_have_called =
      run.program.point_to_point || !run.channel.HasNotCalled(run.ticket, run.channel.rank()).has_value();
  return all_have_called ? Polled::kMoved : Polled::kNothing;
}

absl::Status StreamExecutor::GraphHasFailed(const StreamRun& run) {
  return absl::DataLossError(absl::StrCat("rank ", run.channel.peer(run.channel.rank()).world_rank,
                                          ": a message in a CUDA graph could not be decoded before ", run.Text()));
}

Executor::Polled StreamExecutor::EndIfReached(StreamRun& run) {
  if (run.channel.on_device()->graph_has_failed()) return Fail(run, GraphHasFailed(run));
  if (run.captured_) return EndIfCaptured(run);
  const CudaError error = device_.cuda->query_event(run.end_);
  if (error == kCudaNotReady) {
    const absl::StatusOr<bool> ready = run.channel.on_device()->Ready();
    return ready.ok() ? Polled::kNothing : FailByNative(run, ready.status());
  }
  if (error != kCudaSuccess) return Fail(run, CudaStatus(*device_.cuda, error, run.Text()));
  if (run.decodes_ && *run.error_here_ != 0) {
    return Fail(run, absl::DataLossError(absl::StrCat("rank ", run.channel.peer(run.channel.rank()).world_rank, " in ",
                                                      run.Text(), ": a message cannot be decoded")));
  }
  // What was on the stream has ended, which says nothing about what the peers called. No run ends OK once a peer has
  // given the channel up.
  if (run.channel.peer_failed()) return Polled::kNothing;
  if (absl::Status calls = run.channel.CompareCalls(run); !calls.ok()) return Fail(run, std::move(calls));
  const absl::StatusOr<bool> ready = run.channel.on_device()->Ready();
  if (!ready.ok()) return FailByNative(run, ready.status());
  if (run.program.point_to_point) run.call.SetSource(run.program.plan.spec.root);
  return Polled::kMoved;
}

void StreamExecutor::Finish(StreamRun& run, const absl::Status& status) {
  if (!run.call.options().background) --in_foreground_;
  if (status.ok()) Count(calls_, 1);
  run.stage_ = StreamRun::Stage::kQueued;
  run.next_launch_ = 0;
  run.watch = {};
  run.call.Finish(status);
}

void StreamExecutor::Abandon(Channel& channel, const absl::Status& cause) {
  // For what Abort leaves on the device HasLetGo waits.
  if (channel.on_device() != nullptr) channel.on_device()->Abort(cause, absl::Now() + kAbortTime);
}

std::vector<Rank> StreamExecutor::MessagePeers(const Channel& channel) const {
  return channel.on_device() == nullptr ? std::vector<Rank>() : channel.on_device()->Unfinished();
}

bool StreamExecutor::HasLetGo(const Channel& channel) const {
  if (channel.on_device() == nullptr) return true;
  return HasEnded(*device_.cuda, device_.index, channel.on_device()->stream());
}

void StreamExecutor::End(Channel& channel, const absl::Status& cause) {
  // The engine waits no longer. To free memory would be to wait for the device.
  if (!HasLetGo(channel)) channel.on_device()->GiveUp();
  for (std::vector<Run*>* const list : {&active_, &pending_}) {
    for (Run* const run : TakeRunsOf(channel, *list)) Finish(StreamRunOf(run), cause);
  }
}

bool StreamExecutor::Uses(const Channel& channel) const {
  return HasRunOf(channel, active_) || HasRunOf(channel, pending_);
}

Executor::Polled StreamExecutor::Fail(const StreamRun& run, absl::Status error) {
  error_ = std::move(error);
  failed_channel_ = &run.channel;
  return Polled::kFailed;
}

// What the native transport finds wrong may come from ranks that have made different calls, which the channel can tell.
// And NCCL is often the first to notice that a rank has gone, but does not say which. The engine meanwhile looks at its
// peers: its error, also that of a deadline, names the rank.
Executor::Polled StreamExecutor::FailByNative(const StreamRun& run, const absl::Status& error) {
  if (absl::Status calls = run.channel.CompareCalls(run); !calls.ok()) return Fail(run, std::move(calls));
  ChannelOnDevice& on_device = *run.channel.on_device();
  // The transport repeats its errors; one that it does not repeat comes from elsewhere.
  if (!absl::IsUnavailable(error) || on_device.Ready().ok()) return Fail(run, error);
  if (!on_device.HasAwaitedNews()) return Polled::kNothing;
  return Fail(run, WithRanksThatLeft(run, error));
}

// Ranks that have left after they made all calls which are under way here are not the engine's to name.
absl::Status StreamExecutor::WithRanksThatLeft(const StreamRun& run, const absl::Status& error) {
  const Channel& channel = run.channel;
  std::string known;
  for (Rank rank = 0; rank < channel.size(); ++rank) {
    if (rank == channel.rank() || !channel.HasLeft(rank)) continue;
    known = TextOfLeaver(channel.peer(rank).world_rank);
    break;
  }
  if (known.empty()) {
    known = absl::StrCat("rank ", channel.peer(channel.rank()).world_rank,
                         " has heard of no rank that died or left: look at the output of the other ranks, and at the "
                         "network between their nodes");
  }
  return absl::Status(error.code(), absl::StrCat(error.message(), ", in ", run.Text(), "; ", known));
}

absl::Status StreamExecutor::StatusOf(CudaError error, const StreamRun& run, absl::string_view what) const {
  if (error == kCudaSuccess) return absl::OkStatus();
  return CudaStatus(*device_.cuda, error, absl::StrCat(what, " of ", run.Text()));
}

}  // namespace tutti
