#include "transports/staged/transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "memory/stuck_devices.h"

namespace tutti {
namespace staged {
namespace {

absl::Status HasNoParts(Rank rank, absl::string_view function) {
  return absl::UnimplementedError(absl::StrCat("rank ", rank, ": ", function,
                                               ": staged messages have no groups of their own; make a new transport"));
}

}  // namespace

absl::Status StagedTransport::Open() {
  const CudaRuntime& cuda = *options_.cuda;
  const CudaDeviceScope scope(cuda, options_.device);
  const CudaOutsideCapture outside(cuda);
  CudaError error = scope.error();
  if (error == kCudaSuccess) error = cuda.create_stream(&from_device_);
  if (error == kCudaSuccess) error = cuda.create_stream(&to_device_);
  if (error == kCudaSuccess) error = cuda.create_event(&begin_);
  if (error == kCudaSuccess) error = cuda.create_event(&end_);
  sends_.resize(options_.peers.size());
  recvs_.resize(options_.peers.size());
  return CudaStatus(cuda, error, absl::StrCat("rank ", rank(), ": streams for messages of GPU ", options_.device));
}

StagedTransport::~StagedTransport() {
  const CudaRuntime& cuda = *options_.cuda;
  const CudaDeviceScope scope(cuda, options_.device);
  const CudaOutsideCapture outside(cuda);
  const bool is_stuck = IsStuck(cuda, options_.device);
  for (std::vector<std::unique_ptr<Pipe>>* const pipes : {&sends_, &recvs_}) {
    for (std::unique_ptr<Pipe>& pipe : *pipes) {
      // The transport, or a peer, may still use slots of a message that never came back.
      if (pipe != nullptr && (pipe->under_way() > 0 || is_stuck)) static_cast<void>(pipe.release());
    }
    pipes->clear();
  }
  if (from_device_ != nullptr) cuda.destroy_stream(from_device_);
  if (to_device_ != nullptr) cuda.destroy_stream(to_device_);
  if (begin_ != nullptr) cuda.destroy_event(begin_);
  if (end_ != nullptr) cuda.destroy_event(end_);
  if (options_.give_number_back) options_.give_number_back();
}

absl::Status StagedTransport::Supports(Collective collective, DType /*dtype*/, ReduceOp /*op*/) const {
  if (IsPointToPoint(collective)) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("rank ", rank(), ": ", Name(collective),
                                               " is no message: staged messages carry Sends and Recvs only"));
}

absl::Status StagedTransport::Check(const NativeCall& call) const {
  if (absl::Status status = Supports(call.collective, call.dtype, call.op); !status.ok()) return status;
  const bool sends = call.collective == Collective::kSend;
  const auto invalid = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank(), ": ", Name(call.collective), ": ", what));
  };
  if (call.root < 0 || call.root >= size() || call.root == rank()) {
    return invalid(absl::StrCat("peer ", call.root, " must be another rank in 0…", size() - 1));
  }
  if (call.count < 0) return invalid(absl::StrCat("count ", call.count, " must not be negative"));
  if (call.count > 0 && (sends ? call.src : call.dst) == nullptr) return invalid(sends ? "src is null" : "dst is null");
  return absl::OkStatus();
}

absl::StatusOr<Pipe*> StagedTransport::PipeOf(const NativeCall& call) {
  const bool sends = call.collective == Collective::kSend;
  std::unique_ptr<Pipe>& pipe = (sends ? sends_ : recvs_)[static_cast<std::size_t>(call.root)];
  if (pipe == nullptr) {
    const StagedOptions::Peer& peer = options_.peers[static_cast<std::size_t>(call.root)];
    const Rank receiver = sends ? call.root : rank();
    pipe = std::make_unique<Pipe>(PipeEnds{.cuda = options_.cuda,
                                           .stream = sends ? from_device_ : to_device_,
                                           .endpoint = &options_.transport->endpoint(peer.world_rank),
                                           .number = options_.peers[static_cast<std::size_t>(receiver)].number,
                                           .segment_bytes = SegmentBytes(size())},
                                  sends);
  }
  if (absl::Status status = pipe->MakeRoom(); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("rank ", rank(), ": ", status.message()));
  }
  return pipe.get();
}

absl::Status StagedTransport::Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) {
  if (!failure_.ok()) return failure_;
  if (!active_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank(), ": messages of a GPU were enqueued before those before had ended (Ready)"));
  }
  for (const NativeCall& call : calls) {
    if (absl::Status status = Check(call); !status.ok()) return status;
  }
  absl::Status status = Begin(calls, stream);
  return status.ok() ? status : Fail(std::move(status));
}

absl::Status StagedTransport::Begin(absl::Span<const NativeCall> calls, CUstream_st* stream) {
  const CudaDeviceScope scope(*options_.cuda, options_.device);
  stream_ = stream;
  for (const NativeCall& call : calls) {
    const std::int64_t bytes = call.count * SizeOf(call.dtype);
    if (bytes == 0) continue;  // neither end has a message
    absl::StatusOr<Pipe*> pipe = PipeOf(call);
    if (!pipe.ok()) return pipe.status();
    const void* const memory = call.collective == Collective::kSend ? call.src : call.dst;
    (*pipe)->Add(static_cast<std::byte*>(const_cast<void*>(memory)), bytes);
    if (std::find(active_.begin(), active_.end(), *pipe) == active_.end()) active_.push_back(*pipe);
  }
  if (active_.empty()) return absl::OkStatus();
  CudaError error = LetWait(from_device_, stream, begin_);
  if (error == kCudaSuccess) error = options_.cuda->wait_event(to_device_, begin_);
  if (error != kCudaSuccess) {
    return CudaStatus(*options_.cuda, error, absl::StrCat("rank ", rank(), ": messages of a GPU"));
  }
  for (Pipe* const pipe : active_) {
    if (absl::Status status = pipe->Advance(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

CudaError StagedTransport::LetWait(CUstream_st* waits, CUstream_st* stream, CUevent_st* event) const {
  const CudaError error = options_.cuda->record_event(event, stream);
  return error == kCudaSuccess ? options_.cuda->wait_event(waits, event) : error;
}

absl::StatusOr<bool> StagedTransport::Ready() {
  if (!failure_.ok()) return failure_;
  if (active_.empty()) return true;
  const CudaDeviceScope scope(*options_.cuda, options_.device);
  options_.transport->Progress();
  bool done = true;
  for (Pipe* const pipe : active_) {
    if (absl::Status status = pipe->Advance(); !status.ok()) return Fail(std::move(status));
    done &= pipe->done();
  }
  if (!done) return false;
  if (absl::Status status = End(); !status.ok()) return Fail(std::move(status));
  return true;
}

absl::Status StagedTransport::End() {
  active_.clear();
  return CudaStatus(*options_.cuda, LetWait(stream_, to_device_, end_),
                    absl::StrCat("rank ", rank(), ": messages of a GPU"));
}

absl::Status StagedTransport::Fail(absl::Status error) {
  failure_ = std::move(error);
  return failure_;
}

absl::StatusOr<std::unique_ptr<NativeTransport>> StagedTransport::Split(std::optional<int> /*color*/, int /*key*/,
                                                                        absl::Time /*deadline*/) {
  return HasNoParts(rank(), "Split");
}

absl::StatusOr<std::unique_ptr<NativeTransport>> StagedTransport::Shrink(absl::Span<const Rank> /*dead*/,
                                                                         absl::Time /*deadline*/) {
  return HasNoParts(rank(), "Shrink");
}

absl::Status StagedTransport::Finalize(absl::Time /*deadline*/) {
  if (!failure_.ok()) return failure_;
  // The sends of a group that has ended were taken by the peers.
  const bool ended = active_.empty();
  failure_ = absl::FailedPreconditionError(absl::StrCat("rank ", rank(), ": the staged messages were finalized"));
  return ended ? absl::OkStatus()
               : absl::FailedPreconditionError(
                     absl::StrCat("rank ", rank(), ": Finalize while messages of a GPU are under way"));
}

absl::Status StagedTransport::Abort(const absl::Status& cause, absl::Time /*deadline*/) {
  if (failure_.ok()) failure_ = cause;
  if (std::exchange(aborted_, true)) return absl::OkStatus();
  options_.transport->Discard(options_.peers[static_cast<std::size_t>(rank())].number);
  if (stream_ == nullptr) return absl::OkStatus();
  // Copies that are enqueued still use the memory of the group: whoever waits for the stream waits for them.
  const CudaDeviceScope scope(*options_.cuda, options_.device);
  CudaError error = LetWait(stream_, from_device_, begin_);
  if (error == kCudaSuccess) error = LetWait(stream_, to_device_, end_);
  return CudaStatus(*options_.cuda, error, absl::StrCat("rank ", rank(), ": the end of messages of a GPU"));
}

std::vector<Rank> StagedTransport::Unfinished() {
  std::vector<Rank> ranks;
  if (active_.empty()) return ranks;
  options_.transport->Progress();
  for (Rank peer = 0; peer < size(); ++peer) {
    const auto has = [place = static_cast<std::size_t>(peer)](const std::vector<std::unique_ptr<Pipe>>& pipes) {
      return pipes[place] != nullptr && pipes[place]->under_way() > 0;
    };
    if (has(sends_) || has(recvs_)) ranks.push_back(peer);
  }
  return ranks;
}

}  // namespace staged

absl::StatusOr<std::unique_ptr<NativeTransport>> MakeStagedTransport(StagedOptions options) {
  auto made = std::make_unique<staged::StagedTransport>(std::move(options));
  if (absl::Status status = made->Open(); !status.ok()) return status;
  return made;
}

}  // namespace tutti
