#include "transports/nccl/transport.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "transports/nccl/bounded.h"
#include "transports/nccl/enqueue.h"
#include "transports/nccl/status.h"
#include "transports/nccl/types.h"

namespace tutti::nccl {
namespace {

// How long giving up takes at most, where the caller has given no time.
constexpr absl::Duration kAbortTime = absl::Seconds(2);

CollectiveSpec SpecOf(const NativeCall& call) {
  return {.collective = call.collective, .dtype = call.dtype, .op = call.op, .count = call.count, .root = call.root};
}

// What was being enqueued when an error came: the last call that was begun names the group.
std::string GroupText(absl::Span<const NativeCall> begun) {
  if (begun.empty()) return "an empty group";
  const std::string last = ToString(SpecOf(begun.back()));
  return begun.size() == 1 ? last : absl::StrCat("a group of calls, with ", last);
}

// ncclCommAbort may wait for the device, so it is called where nobody waits for it without an end.
// `written` is memory that NCCL may write until then.
absl::Status AbortComm(const Library& nccl, const CudaRuntime& cuda, int device, Rank rank, Comm comm,
                       std::int64_t end_ns, std::shared_ptr<void> written = nullptr) {
  const std::int64_t start_ns = MonotonicNanos();
  const bool returned = ReturnsBy(end_ns, [&nccl, &cuda, device, comm, written = std::move(written)] {
    cuda.set_device(device);
    nccl.comm_abort(comm);
  });
  if (returned) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank, ": NCCL has not aborted its communicator within ",
                   absl::FormatDuration(absl::Nanoseconds(MonotonicNanos() - start_ns)),
                   "; a thread is left behind in it, and what was enqueued may never end"));
}

}  // namespace

absl::StatusOr<UniqueId> NewUniqueId(const Library& nccl) {
  UniqueId id{};
  const Result result = nccl.get_unique_id(&id);
  if (result != Result::kSuccess) return StatusOf(nccl, result, 0, "making the id of a communicator");
  return id;
}

absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(const ConnectOptions& options, absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  const auto& [nccl, cuda, device, rank, size, id] = options;
  if (rank < 0 || rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("nccl: rank ", rank, " must be in 0…", size - 1));
  }
  const CudaDeviceScope scope(*cuda, device);
  if (scope.error() != kCudaSuccess) {
    return CudaStatus(*cuda, scope.error(), absl::StrCat("rank ", rank, ": device ", device));
  }
  const std::string what = absl::StrCat("joining a communicator of ", size, " ranks");
  Config config;
  config.blocking = 0;
  Comm comm = nullptr;
  const Result result = nccl->comm_init_rank_config(&comm, size, id, rank, &config);
  absl::Status joined = absl::OkStatus();
  if (!IsGood(result)) {
    joined = StatusOf(*nccl, result, rank, what);
  } else {
    joined = AwaitReady(*nccl, comm, rank, what, end_ns);
  }
  if (joined.ok()) return std::make_unique<NcclTransport>(*nccl, *cuda, device, rank, size, comm);
  // What could not be given up in time is told to nobody: the error of joining is the one that explains it.
  if (comm != nullptr) AbortComm(*nccl, *cuda, device, rank, comm, NanosIn(kAbortTime)).IgnoreError();
  return joined;
}

NcclTransport::~NcclTransport() {
  AbortBy(absl::AbortedError(absl::StrCat("rank ", rank_, " destroyed its NCCL communicator")), NanosIn(kAbortTime))
      .IgnoreError();
}

absl::Status NcclTransport::Fail(absl::Status error) {
  if (failure_.ok()) failure_ = std::move(error);
  return failure_;
}

absl::Status NcclTransport::FailUnlessGood(Result result, absl::string_view what) {
  if (IsGood(result)) return absl::OkStatus();
  return Fail(StatusOf(nccl_, result, rank_, what));
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

absl::Status NcclTransport::CheckReady(absl::string_view what) {
  const absl::StatusOr<bool> ready = Ready();
  if (!ready.ok()) return ready.status();
  if (*ready) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank_, ": ", what, " before NCCL has put the last group on its stream; wait until Ready is true"));
}

absl::Status NcclTransport::Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) {
  for (const NativeCall& call : calls) {
    if (absl::Status valid = Check(call); !valid.ok()) return failure_.ok() ? valid : failure_;
  }
  if (absl::Status ready = CheckReady("a group"); !ready.ok()) return ready;
  // The creation of operators, too, is inside the group: nothing is under way in the communicator until its end.
  Result result = nccl_.group_start();
  std::size_t begun = 0;
  while (IsGood(result) && begun < calls.size()) {
    result = EnqueueOne(nccl_, comm_, rank_, size_, calls[begun++], stream);
  }
  const Result ended = nccl_.group_end();
  if (IsGood(result)) result = ended;
  if (IsGood(result)) return absl::OkStatus();
  return Fail(StatusOf(nccl_, result, rank_, GroupText(calls.first(begun))));
}

absl::StatusOr<bool> NcclTransport::Ready() {
  if (!failure_.ok()) return failure_;
  if (comm_ == nullptr) return absl::FailedPreconditionError("the NCCL communicator has been finalized");
  Result state = Result::kSuccess;
  const Result asked = nccl_.comm_get_async_error(comm_, &state);
  if (absl::Status good = FailUnlessGood(asked, "asking for errors"); !good.ok()) return good;
  if (absl::Status good = FailUnlessGood(state, "what was enqueued"); !good.ok()) return good;
  return state == Result::kSuccess;
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

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Adopt(Comm made, absl::string_view what,
                                                                      std::int64_t end_ns) {
  absl::Status ready = AwaitReady(nccl_, made, rank_, what, end_ns);
  int rank = 0;
  int size = 0;
  if (ready.ok()) ready = StatusOf(nccl_, nccl_.comm_user_rank(made, &rank), rank_, what);
  if (ready.ok()) ready = StatusOf(nccl_, nccl_.comm_count(made, &size), rank_, what);
  if (ready.ok()) return std::make_unique<NcclTransport>(nccl_, cuda_, device_, rank, size, made);
  AbortComm(nccl_, cuda_, device_, rank_, made, NanosIn(kAbortTime)).IgnoreError();
  return ready;
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Split(std::optional<int> color, int key,
                                                                      absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  constexpr absl::string_view kWhat = "split";
  if (absl::Status ready = CheckReady(kWhat); !ready.ok()) return ready;
  if (color && *color < 0) {
    return absl::InvalidArgumentError(absl::StrCat("split of rank ", rank_, ": color ", *color, " must be at least 0"));
  }
  if (nccl_.comm_split == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NCCL ", VersionText(nccl_.version), " has no ncclCommSplit"));
  }
  // NCCL writes the new communicator when it is made, perhaps after this call has given up.
  const auto made = std::make_shared<Comm>(nullptr);
  const Result result = nccl_.comm_split(comm_, color.value_or(kNoColor), key, made.get(), nullptr);
  if (absl::Status good = FailUnlessGood(result, kWhat); !good.ok()) return good;
  if (absl::Status parent = AwaitReady(nccl_, comm_, rank_, kWhat, end_ns); !parent.ok()) {
    AbortBy(parent, NanosIn(kAbortTime), made).IgnoreError();
    return parent;
  }
  if (*made == nullptr) return nullptr;
  return Adopt(*made, kWhat, end_ns);
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Shrink(absl::Span<const Rank> dead,
                                                                       absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  constexpr absl::string_view kWhat = "shrink";
  // A communicator with an error may be shrunk, as far as Tutti is concerned: NCCL decides.
  if (comm_ == nullptr) return Ready().status();
  if (dead.empty()) return absl::InvalidArgumentError("shrink: `dead` must name a rank");
  for (const Rank rank : dead) {
    if (rank < 0 || rank >= size_ || rank == rank_) {
      return absl::InvalidArgumentError(
          absl::StrCat("shrink of rank ", rank_, ": dead rank ", rank, " must be another one in 0…", size_ - 1));
    }
  }
  if (nccl_.comm_shrink == nullptr) {
    return absl::UnimplementedError(absl::StrCat("NCCL ", VersionText(nccl_.version),
                                                 " has no ncclCommShrink, 2.27 has; the survivors connect anew"));
  }
  struct Shrinking {
    std::vector<int> dead;
    Comm made = nullptr;
    Result result = Result::kSuccess;
  };
  const auto shrinking = std::make_shared<Shrinking>();
  shrinking->dead.assign(dead.begin(), dead.end());
  // ncclCommShrink waits until the device has left what it aborts.
  const bool returned = ReturnsBy(end_ns, [&nccl = nccl_, &cuda = cuda_, device = device_, comm = comm_, shrinking] {
    cuda.set_device(device);
    shrinking->result = nccl.comm_shrink(comm, shrinking->dead.data(), static_cast<int>(shrinking->dead.size()),
                                         &shrinking->made, nullptr, kShrinkAbort);
  });
  if (!returned) {
    comm_ = nullptr;  // the thread that is left behind is in it
    return Fail(absl::DeadlineExceededError(absl::StrCat("rank ", rank_, ": NCCL has not aborted what was enqueued")));
  }
  absl::Status shrunk = absl::OkStatus();
  if (!IsGood(shrinking->result)) shrunk = StatusOf(nccl_, shrinking->result, rank_, kWhat);
  if (shrunk.ok()) shrunk = AwaitReady(nccl_, comm_, rank_, kWhat, end_ns);
  if (!shrunk.ok()) {
    AbortBy(shrunk, NanosIn(kAbortTime), shrinking).IgnoreError();
    return shrunk;
  }
  Fail(absl::AbortedError(absl::StrCat("rank ", rank_, " has shrunk its NCCL communicator"))).IgnoreError();
  return Adopt(shrinking->made, kWhat, end_ns);
}

absl::Status NcclTransport::Finalize(absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  constexpr absl::string_view kWhat = "finalize";
  absl::Status status = CheckReady(kWhat);
  for (const auto& [data, handle] : registrations_) {
    if (status.ok()) status = FailUnlessGood(nccl_.comm_deregister(comm_, handle), kWhat);
  }
  registrations_.clear();
  if (status.ok()) status = FailUnlessGood(nccl_.comm_finalize(comm_), kWhat);
  if (status.ok()) status = AwaitReady(nccl_, comm_, rank_, kWhat, end_ns);
  if (!status.ok()) {
    AbortBy(status, NanosIn(kAbortTime)).IgnoreError();
    return status;
  }
  const bool returned = ReturnsBy(end_ns, [&nccl = nccl_, &cuda = cuda_, device = device_, comm = comm_] {
    cuda.set_device(device);
    nccl.comm_destroy(comm);
  });
  comm_ = nullptr;
  if (returned) return absl::OkStatus();
  return Fail(absl::DeadlineExceededError(
      absl::StrCat("rank ", rank_, ": NCCL has not destroyed its communicator; a thread is left behind in it")));
}

absl::Status NcclTransport::Abort(const absl::Status& cause, absl::Time deadline) {
  return AbortBy(cause, NanosAt(deadline));
}

absl::Status NcclTransport::AbortBy(const absl::Status& cause, std::int64_t end_ns, std::shared_ptr<void> written) {
  const Comm comm = std::exchange(comm_, nullptr);
  registrations_.clear();
  if (comm == nullptr) return absl::OkStatus();
  Fail(cause.ok() ? absl::AbortedError(absl::StrCat("rank ", rank_, " has aborted its NCCL communicator")) : cause)
      .IgnoreError();
  return AbortComm(nccl_, cuda_, device_, rank_, comm, end_ns, std::move(written));
}

}  // namespace tutti::nccl
