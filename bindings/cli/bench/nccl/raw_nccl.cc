#include "bindings/cli/bench/nccl/raw_nccl.h"

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "memory/cuda_runtime.h"
#include "transports/nccl/bounded.h"
#include "transports/nccl/enqueue.h"
#include "transports/nccl/library.h"
#include "transports/nccl/status.h"
#include "transports/nccl/types.h"
#include "tutti/bootstrap.h"

namespace tutti::cli {
namespace {

constexpr absl::Duration kAbortTime = absl::Seconds(2);
// While the host waits for the stream it asks NCCL for errors, as nccl-tests does, this often.
constexpr std::int64_t kAskForErrorsNanos = 10'000'000;

std::atomic<const NcclSoftware*> given_software{nullptr};

// The id of the new communicator, which rank 0 makes.
absl::StatusOr<nccl::UniqueId> AgreeOnId(const nccl::Library& library, Communicator& communicator) {
  nccl::UniqueId id{};
  if (communicator.rank() == 0) {
    const nccl::Result made = library.get_unique_id(&id);
    if (made != nccl::Result::kSuccess) return nccl::StatusOf(library, made, 0, "making the id of a communicator");
  }
  const absl::StatusOr<std::vector<std::string>> ids = ExchangeBlobs(
      communicator.store(), "raw_nccl", communicator.rank(), communicator.size(),
      communicator.rank() == 0 ? std::string(id.bytes, sizeof id.bytes) : "", absl::Now() + communicator.timeout());
  if (!ids.ok()) return ids.status();
  if (ids->front().size() != sizeof id.bytes) return absl::InternalError("rank 0 has sent no id of NCCL");
  std::memcpy(id.bytes, ids->front().data(), sizeof id.bytes);
  return id;
}

// Whether the call is a single function of every NCCL. What is not, is sends and receives, which need a group.
bool IsOneFunction(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<NcclSoftware> NcclOfThisProcess() {
  if (const NcclSoftware* const software = given_software.load()) return *software;
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<nccl::Library>& library = nccl::LoadedLibrary();
  if (!library.ok()) return library.status();
  return NcclSoftware{.nccl = &*library, .cuda = *cuda};
}

void SetNcclOfThisProcess(const NcclSoftware* software) { given_software.store(software); }

absl::Status CheckRawNccl(Collective collective, DType dtype, ReduceOp op) {
  return nccl::CheckSupported(collective, dtype, op);
}

class RawNccl::Impl {
 public:
  Impl(const NcclSoftware& software, const Communicator& communicator)
      : nccl_(*software.nccl),
        cuda_(*software.cuda),
        device_(*communicator.cuda_device()),
        rank_(communicator.rank()),
        size_(communicator.size()) {}

  ~Impl() {
    const CudaDeviceScope scope(cuda_, device_);
    if (comm_ != nullptr) {
      const auto give_up = failed_ ? nccl_.comm_abort : nccl_.comm_destroy;
      nccl::ReturnsBy(NanosIn(kAbortTime), [give_up, comm = comm_, &cuda = cuda_, device = device_] {
        cuda.set_device(device);
        give_up(comm);
      }).IgnoreError();
    }
    if (stream_ != nullptr) cuda_.destroy_stream(stream_);
  }

  absl::Status Connect(const nccl::UniqueId& id, absl::Duration timeout) {
    const CudaDeviceScope scope(cuda_, device_);
    CudaError error = scope.error();
    if (error == kCudaSuccess) error = cuda_.create_stream(&stream_);
    if (error != kCudaSuccess) return CudaStatus(cuda_, error, absl::StrCat("rank ", rank_, ": raw NCCL"));
    // NCCL writes the communicator when it has connected, perhaps after this call has given up.
    struct Connecting {
      nccl::Config config;
      nccl::Comm comm = nullptr;
      nccl::Result result = nccl::Result::kSuccess;
    };
    const auto connecting = std::make_shared<Connecting>();
    connecting->config.blocking = 1;
    const absl::StatusOr<bool> returned = nccl::ReturnsBy(
        NanosIn(timeout),
        [connecting, id, &library = nccl_, &cuda = cuda_, device = device_, rank = rank_, size = size_] {
          cuda.set_device(device);
          connecting->result = library.comm_init_rank_config(&connecting->comm, size, id, rank, &connecting->config);
        });
    if (!returned.ok()) return returned.status();
    if (!*returned) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank_, ": raw NCCL has not connected to all ranks within ",
                       absl::FormatDuration(timeout), "; a thread is left behind in it"));
    }
    comm_ = connecting->comm;
    return Checked(connecting->result, "raw NCCL: joining a communicator");
  }

  absl::Status Enqueue(absl::Span<const NativeCall> calls) {
    const CudaDeviceScope scope(cuda_, device_);
    const bool grouped = calls.size() != 1 || !IsOneFunction(calls.front().collective);
    nccl::Result result = grouped ? nccl_.group_start() : nccl::Result::kSuccess;
    for (const NativeCall& call : calls) {
      if (result == nccl::Result::kSuccess) {
        result = nccl::EnqueueOne(nccl_, comm_, rank_, size_, call, stream_);
      }
    }
    if (grouped) {
      const nccl::Result ended = nccl_.group_end();
      if (result == nccl::Result::kSuccess) result = ended;
    }
    return Checked(result, "raw NCCL: a call");
  }

  absl::Status Wait(absl::Duration timeout) {
    const CudaDeviceScope scope(cuda_, device_);
    const std::int64_t start_ns = MonotonicNanos();
    const std::int64_t end_ns = NanosAfter(start_ns, timeout);
    std::int64_t ask_ns = start_ns + kAskForErrorsNanos;
    CudaError error = kCudaNotReady;
    while ((error = cuda_.query_stream(stream_)) == kCudaNotReady) {
      const std::int64_t now_ns = MonotonicNanos();
      if (now_ns >= ask_ns) {
        ask_ns = now_ns + kAskForErrorsNanos;
        nccl::Result state = nccl::Result::kSuccess;
        if (absl::Status asked = Checked(nccl_.comm_get_async_error(comm_, &state), "raw NCCL"); !asked.ok()) {
          return asked;
        }
        if (absl::Status good = Checked(state, "raw NCCL: what was enqueued"); !good.ok()) return good;
      }
      if (now_ns >= end_ns) {
        failed_ = true;
        return absl::DeadlineExceededError(absl::StrCat("rank ", rank_, ": what raw NCCL has enqueued has not ended ",
                                                        "within ", absl::FormatDuration(timeout)));
      }
      sched_yield();
    }
    if (error == kCudaSuccess) return absl::OkStatus();
    failed_ = true;
    return CudaStatus(cuda_, error, absl::StrCat("rank ", rank_, ": raw NCCL"));
  }

 private:
  absl::Status Checked(nccl::Result result, absl::string_view what) {
    if (result == nccl::Result::kSuccess) return absl::OkStatus();
    failed_ = true;
    return nccl::StatusOf(nccl_, result, rank_, what);
  }

  const nccl::Library& nccl_;
  const CudaRuntime& cuda_;
  const int device_;
  const Rank rank_;
  const int size_;
  nccl::Comm comm_ = nullptr;
  CUstream_st* stream_ = nullptr;
  bool failed_ = false;
};

RawNccl::RawNccl(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RawNccl::~RawNccl() = default;

absl::StatusOr<std::unique_ptr<RawNccl>> RawNccl::Connect(const NcclSoftware& software, Communicator& communicator,
                                                          absl::Duration timeout) {
  const absl::StatusOr<nccl::UniqueId> id = AgreeOnId(*software.nccl, communicator);
  if (!id.ok()) return id.status();
  auto impl = std::make_unique<Impl>(software, communicator);
  if (absl::Status connected = impl->Connect(*id, timeout); !connected.ok()) return connected;
  return absl::WrapUnique(new RawNccl(std::move(impl)));
}

absl::Status RawNccl::Enqueue(absl::Span<const NativeCall> calls) { return impl_->Enqueue(calls); }

absl::Status RawNccl::Wait(absl::Duration timeout) { return impl_->Wait(timeout); }

}  // namespace tutti::cli
