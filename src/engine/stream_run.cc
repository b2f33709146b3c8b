#include "engine/stream_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/call.h"
#include "engine/channel.h"
#include "memory/stuck_devices.h"

namespace tutti {

StreamRun::StreamRun(const StreamDevice& device, Call& its_call, Channel& its_channel, const Program& its_program)
    : Run(its_call, its_channel, its_program),
      device_(device),
      decodes_(std::any_of(program.instructions.begin(), program.instructions.end(),
                           [](const Instruction& step) { return step.kind == StepKind::kDecode; })) {
  const StreamOrder& order = *program.stream_order;
  for (std::size_t i = 0; i < order.size(); ++i) MakeRoomFor(order.launch(i));
  for (const Recode& recode : program.recodes) MakeRoomFor(StepsOf(recode));
  ListMessages();
}

void StreamRun::ListMessages() {
  const CollectiveSpec& spec = program.plan.spec;
  const std::int64_t size = SizeOf(spec.dtype);
  if (program.takes_messages) return;
  if (program.point_to_point) {
    messages_.push_back({spec.root, spec.collective == Collective::kSend, spec.count * size});
  }
  if (spec.collective != Collective::kAllToAllV) return;
  for (Rank peer = 0; peer < channel.size(); ++peer) {
    if (peer == channel.rank()) continue;
    messages_.push_back({peer, true, spec.send_counts[static_cast<std::size_t>(peer)] * size});
    messages_.push_back({peer, false, spec.recv_counts[static_cast<std::size_t>(peer)] * size});
  }
}

void StreamRun::MakeRoomFor(absl::Span<const StepId> steps) {
  std::size_t dsts = 0;
  std::size_t srcs = 0;
  for (const StepId step : steps) {
    dsts += program.instructions[step].num_dsts;
    srcs += program.instructions[step].num_srcs;
  }
  dsts_.reserve(std::max(dsts_.capacity(), dsts));
  srcs_.reserve(std::max(srcs_.capacity(), srcs));
  steps_.reserve(std::max(steps_.capacity(), steps.size()));
  natives_.reserve(steps_.capacity());
}

absl::Span<const StepId> StreamRun::StepsOf(const Recode& recode) const {
  const StreamOrder& order = *program.stream_order;
  const StepId* const begin = order.launch(recode.begin).data();
  return {begin, static_cast<std::size_t>(order.launch(recode.end - 1).data() + 1 - begin)};
}

StreamRun::~StreamRun() {
  const CudaRuntime& cuda = *device_.cuda;
  const CudaDeviceScope scope(cuda, device_.index);
  const CudaOutsideCapture outside(cuda);
  if (input_ready_ != nullptr) cuda.destroy_event(input_ready_);
  if (end_ != nullptr) cuda.destroy_event(end_);
  if (IsStuck(cuda, device_.index)) return;
  if (scratch_ != nullptr) cuda.free(scratch_);
  if (error_ != nullptr) cuda.free(error_);
  if (error_here_ != nullptr) cuda.free_pinned(error_here_);
}

absl::Status StreamRun::Allocate() {
  const CudaRuntime& cuda = *device_.cuda;
  const CudaDeviceScope scope(cuda, device_.index);
  const CudaOutsideCapture outside(cuda);
  const auto status_of = [&](CudaError error, absl::string_view what) {
    return error == kCudaSuccess
               ? absl::OkStatus()
               : CudaStatus(cuda, error, absl::StrCat("rank ", program.plan.rank, ": ", what, " of ", What()));
  };
  absl::Status status = status_of(scope.error(), "to use the device");
  const auto scratch_bytes = static_cast<std::size_t>(program.plan.scratch_bytes);
  if (status.ok() && scratch_bytes > 0 && scratch_ == nullptr)
    status = status_of(cuda.allocate(&scratch_, scratch_bytes), "the scratch");
  void* error = error_;
  if (status.ok() && decodes_ && error == nullptr)
    status = status_of(cuda.allocate(&error, sizeof *error_), "the error word");
  error_ = static_cast<std::uint32_t*>(error);
  void* here = error_here_;
  if (status.ok() && decodes_ && here == nullptr)
    status = status_of(cuda.allocate_pinned(&here, sizeof *error_here_), "the error word");
  error_here_ = static_cast<std::uint32_t*>(here);
  if (status.ok() && input_ready_ == nullptr) status = status_of(cuda.create_event(&input_ready_), "the event");
  if (status.ok()) status = status_of(cuda.create_event(&end_), "the event");
  return status;
}

absl::Status StreamRun::CheckMemory(const void* memory, absl::string_view what) const {
  if (memory == nullptr) return absl::OkStatus();
  const CudaDeviceScope scope(*device_.cuda, device_.index);
  CudaPointer found;
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = device_.cuda->pointer(&found, memory);
  if (error != kCudaSuccess) {
    return CudaStatus(*device_.cuda, error, absl::StrCat("the ", what, " of ", What()));
  }
  const bool managed = found.kind == CudaPointer::Kind::kManaged;
  if (managed || (found.kind == CudaPointer::Kind::kDevice && found.device == device_.index)) return absl::OkStatus();
  const std::string where =
      found.kind == CudaPointer::Kind::kDevice ? absl::StrCat("memory of device ", found.device) : "host memory";
  return absl::InvalidArgumentError(absl::StrCat("rank ", channel.peer(channel.rank()).world_rank, ": the ", what,
                                                 " of ", What(), " is ", where, ", and the communicator is for device ",
                                                 device_.index));
}

absl::Status StreamRun::SetBuffers(const void* in, void* out, void* state) {
  if (end_ == nullptr) {
    if (absl::Status status = Allocate(); !status.ok()) return status;
  }
  const auto set = [&](Space space, const void* memory, std::int64_t bytes, absl::string_view what) {
    std::byte*& base = bases[static_cast<std::size_t>(space)];
    auto* const given = static_cast<std::byte*>(const_cast<void*>(memory));
    if (given == base) return absl::OkStatus();  // known to be the device's
    absl::Status status = bytes > 0 ? CheckMemory(memory, what) : absl::OkStatus();
    if (status.ok()) base = given;
    return status;
  };
  bases[static_cast<std::size_t>(Space::kScratch)] = static_cast<std::byte*>(scratch_);
  const Plan& plan = program.plan;
  absl::Status status = set(Space::kIn, in, plan.in_bytes, "input");
  if (status.ok()) status = set(Space::kOut, out, plan.out_bytes, "output");
  if (status.ok()) status = set(Space::kState, state, plan.state_bytes, "state");
  return status;
}

absl::Status StreamRun::SetMessages(absl::Span<const NativeCall> calls) {
  messages_.clear();
  given_.clear();
  given_to_self_.clear();
  std::size_t received = 0;  // of the copies in given_to_self_: those whose receive has come
  std::size_t sent = 0;
  for (const NativeCall& one : calls) {
    const bool sends = one.collective == Collective::kSend;
    const std::int64_t bytes = one.count * SizeOf(one.dtype);
    if (absl::Status status = CheckMemory(sends ? one.src : one.dst, sends ? "input" : "output"); !status.ok()) {
      return status;
    }
    messages_.push_back({one.root, sends, bytes});
    if (one.root != channel.rank()) {
      // No rank launches a message without bytes.
      if (bytes == 0) continue;
      NativeCall& given = given_.emplace_back(one);
      given.dtype = DType::kU8;  // as of the messages of plans, which they may meet
      given.count = bytes;
      continue;
    }
    std::size_t& place = sends ? sent : received;
    if (place == given_to_self_.size()) given_to_self_.push_back({nullptr, nullptr, static_cast<std::size_t>(bytes)});
    CopyToSelf& copy = given_to_self_[place++];
    if (sends) {
      copy.src = one.src;
    } else {
      copy.dst = one.dst;
    }
  }
  return absl::OkStatus();
}

absl::Status StreamRun::OnSubmit(const CallOptions& options) {
  const CudaRuntime& cuda = *device_.cuda;
  const CudaDeviceScope scope(cuda, device_.index);  // whose default stream a null stream is
  auto* const stream = static_cast<CUstream_st*>(options.stream);
  CudaCapture capture = CudaCapture::kNone;
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = cuda.capture_of(stream, &capture, &capture_id_);
  if (error == kCudaSuccess && capture != CudaCapture::kInvalidated) error = cuda.record_event(input_ready_, stream);
  captured_ = error == kCudaSuccess && capture == CudaCapture::kActive;
  in_graph_ |= captured_;
  if (error == kCudaSuccess && capture != CudaCapture::kInvalidated) return absl::OkStatus();
  const std::string what = absl::StrCat("rank ", program.plan.rank, ": CallOptions::stream of ", What());
  if (capture == CudaCapture::kInvalidated) {
    return absl::FailedPreconditionError(
        absl::StrCat(what, " is in a capture that is invalid: end it, and capture again without what made it so"));
  }
  if (!IsOfStream(error)) return CudaStatus(cuda, error, what);
  return absl::InvalidArgumentError(absl::StrCat(
      what, " must be a stream of device ", device_.index,
      ", the communicator's; it was made while another device was current, or does not live: ", cuda.error_text(error),
      " (", cuda.error_name(error), ")"));
}

bool StreamRun::IsOfStream(CudaError error) const {
  if (error != kCudaContextIsDestroyed) return error == kCudaInvalidHandle;
  const CudaOutsideCapture outside(*device_.cuda);
  return device_.cuda->query_event(end_) != error;
}

absl::Status StreamRun::WaitOnStream(CUstream_st* stream) {
  const CudaDeviceScope scope(*device_.cuda, device_.index);
  CudaCapture capture = CudaCapture::kNone;
  unsigned long long id = 0;
  CudaError error = device_.cuda->capture_of(stream, &capture, &id);
  if (error == kCudaSuccess && (captured_ ? id != capture_id_ : capture == CudaCapture::kActive)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", program.plan.rank, ": ", What(), " is ", captured_ ? "" : "not ",
        "part of a CUDA graph, and the stream ",
        captured_ ? "that should wait is not being captured into that" : "that should wait is being captured into one",
        ": call and wait within one capture, or both outside"));
  }
  if (error == kCudaSuccess) error = device_.cuda->wait_event(stream, end_);
  return error == kCudaSuccess ? absl::OkStatus()
                               : CudaStatus(*device_.cuda, error, "to let the stream wait for a call");
}

std::uint32_t StreamRun::steps_left() const {
  return static_cast<std::uint32_t>(launches() - next_launch_) + (stage_ == Stage::kEnqueued ? 1 : 2);
}

// A stream does not say for which rank it waits: any other may be the one, but of messages only their other ends, and
// rather one that is known not to have made its call.
std::optional<Blocker> StreamRun::FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const {
  const auto find = [&](auto&& may_be) -> std::optional<Blocker> {
    for (Rank peer = 0; peer < channel.size(); ++peer) {
      const Blocker blocker = {.peer = peer, .what = "its part of what is on the stream"};
      if (peer != channel.rank() && may_be(peer) && matches(blocker)) return blocker;
    }
    return std::nullopt;
  };
  if (!program.point_to_point) return find([](Rank /*peer*/) { return true; });
  const std::optional<Blocker> absent = find([&](Rank peer) { return !channel.HasMetMessages(*this, peer); });
  if (absent.has_value()) return absent;
  return find([&](Rank peer) {
    return std::any_of(messages_.begin(), messages_.end(), [&](const auto& each) { return each.peer == peer; });
  });
}

}  // namespace tutti
