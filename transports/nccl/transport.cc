#include "transports/nccl/transport.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "transports/nccl/abort.h"
#include "transports/nccl/status.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {
namespace {

CollectiveSpec SpecOf(const NativeCall& call) {
  return {.collective = call.collective, .dtype = call.dtype, .op = call.op, .count = call.count, .root = call.root};
}

// What was being enqueued when an error came: the last call that was begun names the group.
std::string GroupText(absl::Span<const NativeCall> begun) {
  if (begun.empty()) return "an empty group";
  const std::string last = ToString(SpecOf(begun.back()));
  return begun.size() == 1 ? last : absl::StrCat("a group of calls, with ", last);
}

}  // namespace

NcclTransport::~NcclTransport() {
  AbortBy(absl::AbortedError(absl::StrCat("rank ", rank_, " destroyed its NCCL communicator")), NanosIn(kAbortTime))
      .IgnoreError();
}

absl::Status NcclTransport::Fail(absl::Status error) {
  if (failure_.ok()) failure_ = std::move(error);
  return failure_;
}

absl::Status NcclTransport::NamesRank(const absl::Status& error) const {
  return absl::Status(error.code(), absl::StrCat("rank ", rank_, ": ", error.message()));
}

absl::Status NcclTransport::FailUnlessGood(Result result, absl::string_view what) {
  if (IsGood(result)) return absl::OkStatus();
  return Fail(StatusOf(nccl_, result, rank_, what));
}

absl::Status NcclTransport::FailUnlessGood(const GroupEnd& end, absl::Span<const NativeCall> calls) {
  if (IsGood(end.result)) return absl::OkStatus();
  return Fail(StatusOf(nccl_, end.result, rank_, GroupText(calls.first(end.begun))));
}

absl::Status NcclTransport::Supports(Collective collective, DType dtype, ReduceOp op) const {
  return CheckSupported(collective, dtype, op);
}

absl::Status NcclTransport::Check(const NativeCall& call) const {
  const CollectiveSpec spec = SpecOf(call);
  if (absl::Status valid = Validate(spec, rank_, size_); !valid.ok()) return valid;
  if (absl::Status supported = CheckSupported(call.collective, call.dtype, call.op); !supported.ok()) return supported;
  if (call.collective == Collective::kRecv && call.root == kAnySource) {
    return absl::UnimplementedError("NCCL receives from one rank only, not from any; name the sender");
  }
  if ((call.src == nullptr && InputCount(spec, rank_, size_) > 0) ||
      (call.dst == nullptr && OutputCount(spec, rank_, size_) > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(spec), " of rank ", rank_, ": ",
                                                   call.src == nullptr ? "src" : "dst", " must not be null"));
  }
  return absl::OkStatus();
}

absl::Status NcclTransport::NotReady(absl::string_view what) const {
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank_, ": ", what, " before NCCL has put the last group on its stream; wait until Ready is true"));
}

absl::Status NcclTransport::CheckReady(absl::string_view what) {
  const absl::StatusOr<bool> ready = Ready();
  if (!ready.ok()) return ready.status();
  return *ready ? absl::OkStatus() : NotReady(what);
}

// NCCL may exchange the addresses of memory with its peers where that is registered, and in captures, each time.
bool NcclTransport::MayWait(absl::Span<const NativeCall> calls, CUstream_st* stream) const {
  if (!connected_.Serves(calls) || !registrations_.empty()) return true;
  CudaCapture capture = CudaCapture::kNone;
  unsigned long long id = 0;
  return cuda_.capture_of(stream, &capture, &id) == kCudaSuccess && capture == CudaCapture::kActive;
}

absl::Status NcclTransport::Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) {
  for (const NativeCall& call : calls) {
    if (absl::Status valid = Check(call); !valid.ok()) return failure_.ok() ? valid : failure_;
  }
  if (absl::Status ready = CheckReady("a group"); !ready.ok()) return ready;
  if (!MayWait(calls, stream)) return FailUnlessGood(EnqueueGroup(nccl_, comm_, rank_, size_, calls, stream), calls);
  auto launch = std::make_shared<Launch>();
  launch->calls.assign(calls.begin(), calls.end());
  absl::StatusOr<std::shared_ptr<CallApart>> inside = CallApart::Start(
      [&nccl = nccl_, &cuda = cuda_, device = device_, comm = comm_, rank = rank_, size = size_, stream, launch] {
        cuda.set_device(device);
        const CudaOutsideCapture outside(cuda);
        launch->end = EnqueueGroup(nccl, comm, rank, size, launch->calls, stream);
      });
  if (!inside.ok()) return Fail(NamesRank(inside.status()));
  launch_ = std::move(launch);
  inside_ = *std::move(inside);
  return absl::OkStatus();
}

absl::StatusOr<bool> NcclTransport::Ready() {
  if (!failure_.ok()) return failure_;
  if (comm_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", rank_, ": the NCCL communicator has been finalized"));
  }
  if (launch_ != nullptr && inside_->has_returned()) {
    inside_ = nullptr;
    const std::shared_ptr<Launch> launch = std::exchange(launch_, nullptr);
    if (absl::Status good = FailUnlessGood(launch->end, launch->calls); !good.ok()) return good;
    connected_.Add(launch->calls);
  }
  Result state = Result::kSuccess;
  const Result asked = nccl_.comm_get_async_error(comm_, &state);
  if (absl::Status good = FailUnlessGood(asked, "asking for errors"); !good.ok()) return good;
  if (absl::Status good = FailUnlessGood(state, "what was enqueued"); !good.ok()) return good;
  return launch_ == nullptr && state == Result::kSuccess;
}

absl::StatusOr<bool> NcclTransport::Register(void* data, std::int64_t bytes) {
  if (absl::Status ready = CheckReady("Register"); !ready.ok()) return ready;
  if (nccl_.comm_register == nullptr || nccl_.comm_deregister == nullptr) return false;
  if (registrations_.contains(data)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank_, ": memory is registered already"));
  }
  void* handle = nullptr;
  const Result result = nccl_.comm_register(comm_, data, static_cast<std::size_t>(bytes), &handle);
  if (result != Result::kSuccess) return StatusOf(nccl_, result, rank_, absl::StrCat("registering ", bytes, " bytes"));
  if (handle == nullptr) return false;
  registrations_[data] = handle;
  return true;
}

absl::Status NcclTransport::Unregister(void* data) {
  const auto found = registrations_.find(data);
  if (found == registrations_.end()) return absl::OkStatus();  // never registered, or given up with the communicator
  const Result result = nccl_.comm_deregister(comm_, found->second);
  registrations_.erase(found);
  return StatusOf(nccl_, result, rank_, "unregistering memory");
}

absl::Status NcclTransport::Perform(absl::string_view what, std::int64_t end_ns, std::function<Result()> call) {
  const std::int64_t start_ns = MonotonicNanos();
  const auto result = std::make_shared<Result>(Result::kSuccess);
  absl::StatusOr<std::shared_ptr<CallApart>> inside =
      CallApart::Start([&cuda = cuda_, device = device_, call = std::move(call), result] {
        cuda.set_device(device);
        const CudaOutsideCapture outside(cuda);
        *result = call();
      });
  if (!inside.ok()) return NamesRank(inside.status());
  inside_ = *std::move(inside);
  if (!inside_->ReturnsBy(end_ns)) return Late(rank_, what, start_ns);
  inside_ = nullptr;
  if (!IsGood(*result)) return StatusOf(nccl_, *result, rank_, what);
  return AwaitReady(nccl_, comm_, rank_, what, end_ns);
}

absl::Status NcclTransport::Finalize(absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  constexpr absl::string_view kWhat = "finalize";
  absl::Status status = CheckReady(kWhat);
  for (const auto& [data, handle] : registrations_) {
    if (status.ok()) status = FailUnlessGood(nccl_.comm_deregister(comm_, handle), kWhat);
  }
  registrations_.clear();
  if (status.ok()) status = Perform(kWhat, end_ns, [&nccl = nccl_, comm = comm_] { return nccl.comm_finalize(comm); });
  if (!status.ok()) {
    AbortBy(status, NanosIn(kAbortTime)).IgnoreError();
    return status;
  }
  const absl::StatusOr<bool> returned =
      ReturnsBy(end_ns, [&nccl = nccl_, &cuda = cuda_, device = device_, comm = comm_] {
        cuda.set_device(device);
        const CudaOutsideCapture outside(cuda);
        nccl.comm_destroy(comm);
      });
  comm_ = nullptr;
  if (!returned.ok()) return Fail(NamesRank(returned.status()));
  if (*returned) return absl::OkStatus();
  return Fail(absl::DeadlineExceededError(
      absl::StrCat("rank ", rank_, ": NCCL has not destroyed its communicator; a thread is left behind in it")));
}

absl::Status NcclTransport::Abort(const absl::Status& cause, absl::Time deadline) {
  return AbortBy(cause, NanosAt(deadline));
}

absl::Status NcclTransport::AbortBy(const absl::Status& cause, std::int64_t end_ns, std::shared_ptr<void> written) {
  Abortable communicator = {.comm = std::exchange(comm_, nullptr),
                            .device = device_,
                            .rank = rank_,
                            .inside = std::exchange(inside_, nullptr),
                            .written = std::move(written)};
  registrations_.clear();
  launch_ = nullptr;
  if (communicator.comm == nullptr) return absl::OkStatus();
  Fail(cause.ok() ? absl::AbortedError(absl::StrCat("rank ", rank_, " has aborted its NCCL communicator")) : cause)
      .IgnoreError();
  return nccl::Abort(nccl_, cuda_, std::move(communicator), end_ns);
}

}  // namespace tutti::nccl
