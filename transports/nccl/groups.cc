// How communicators come about: from an id, and from others.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "transports/nccl/abort.h"
#include "transports/nccl/status.h"
#include "transports/nccl/transport.h"

namespace tutti::nccl {

absl::StatusOr<UniqueId> NewUniqueId(const Library& nccl) {
  UniqueId id{};
  const Result result = nccl.get_unique_id(&id);
  if (result != Result::kSuccess) return StatusOf(nccl, result, 0, "making the id of a communicator");
  return id;
}

// To join is to wait for the other ranks, so the ranks join a non-blocking communicator, split the blocking one from
// it, and give it up. NCCL_COMM_BLOCKING=1 in the environment makes the first one wait, too: on a thread that is left
// behind then.
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
  struct Joining {
    Config config;
    Comm comm = nullptr;
    Result result = Result::kSuccess;
  };
  const auto joining = std::make_shared<Joining>();
  joining->config.blocking = 0;
  const std::int64_t start_ns = MonotonicNanos();
  const absl::StatusOr<bool> returned = ReturnsBy(end_ns, [options, joining] {
    options.cuda->set_device(options.device);
    const CudaOutsideCapture outside(*options.cuda);
    joining->result =
        options.nccl->comm_init_rank_config(&joining->comm, options.size, options.id, options.rank, &joining->config);
  });
  if (!returned.ok()) return returned.status();
  if (!*returned) return Late(rank, what, start_ns);
  const Comm comm = joining->comm;
  absl::Status joined = IsGood(joining->result) ? absl::OkStatus() : StatusOf(*nccl, joining->result, rank, what);
  if (comm == nullptr) return joined;
  // Aborted where this function fails. What could not be given up in time is told to nobody: the error of joining is
  // the one that explains it.
  NcclTransport all(*nccl, *cuda, device, rank, size, comm);
  if (joined.ok()) joined = AwaitReady(*nccl, comm, rank, what, end_ns);
  if (!joined.ok()) return joined;
  absl::StatusOr<std::unique_ptr<NativeTransport>> made = all.Divide(0, rank, what, end_ns);
  if (!made.ok()) return made;
  if (absl::Status given_up = all.Finalize(TimeAt(end_ns)); !given_up.ok()) return given_up;
  return made;
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Adopt(Comm made, absl::string_view what,
                                                                      std::int64_t end_ns) {
  absl::Status ready = AwaitReady(nccl_, made, rank_, what, end_ns);
  int rank = 0;
  int size = 0;
  if (ready.ok()) ready = StatusOf(nccl_, nccl_.comm_user_rank(made, &rank), rank_, what);
  if (ready.ok()) ready = StatusOf(nccl_, nccl_.comm_count(made, &size), rank_, what);
  if (ready.ok()) return std::make_unique<NcclTransport>(nccl_, cuda_, device_, rank, size, made);
  nccl::Abort(nccl_, cuda_, {.comm = made, .device = device_, .rank = rank_}, NanosIn(kAbortTime)).IgnoreError();
  return ready;
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Divide(std::optional<int> color, int key,
                                                                       absl::string_view what, std::int64_t end_ns) {
  // NCCL writes the new communicator when it is made, perhaps after this call has given up.
  struct Division {
    Config config;
    Comm made = nullptr;
  };
  const auto division = std::make_shared<Division>();
  division->config.blocking = 1;
  division->config.split_share = 0;  // what is given up, or aborted, takes nothing from the new communicator
  const absl::Status divided =
      Perform(what, end_ns, [&nccl = nccl_, comm = comm_, color = color.value_or(kNoColor), key, division] {
        return nccl.comm_split(comm, color, key, &division->made, &division->config);
      });
  if (!divided.ok()) {
    AbortBy(divided, NanosIn(kAbortTime), division).IgnoreError();
    return divided;
  }
  if (division->made == nullptr) return nullptr;
  return Adopt(division->made, what, end_ns);
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclTransport::Split(std::optional<int> color, int key,
                                                                      absl::Time deadline) {
  constexpr absl::string_view kWhat = "split";
  if (absl::Status ready = CheckReady(kWhat); !ready.ok()) return ready;
  if (color.has_value() && *color < 0) {
    return absl::InvalidArgumentError(absl::StrCat("split of rank ", rank_, ": color ", *color, " must be at least 0"));
  }
  return Divide(color, key, kWhat, NanosAt(deadline));
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
  // NCCL's own abort of what was enqueued is over too soon for a thread that waits for peers. One that has ended its
  // call may be about to return.
  constexpr absl::Duration kReturnTime = absl::Milliseconds(100);
  if (launch_ != nullptr && !inside_->ReturnsBy(std::min(end_ns, NanosIn(kReturnTime)))) return NotReady(kWhat);
  struct Shrinking {
    std::vector<int> dead;
    Comm made = nullptr;
  };
  const auto shrinking = std::make_shared<Shrinking>();
  shrinking->dead.assign(dead.begin(), dead.end());
  // ncclCommShrink waits until the device has left what it aborts.
  const absl::Status shrunk = Perform(kWhat, end_ns, [&nccl = nccl_, comm = comm_, shrinking] {
    return nccl.comm_shrink(comm, shrinking->dead.data(), static_cast<int>(shrinking->dead.size()), &shrinking->made,
                            nullptr, kShrinkAbort);
  });
  if (!shrunk.ok()) {
    AbortBy(shrunk, NanosIn(kAbortTime), shrinking).IgnoreError();
    return shrunk;
  }
  Fail(absl::AbortedError(absl::StrCat("rank ", rank_, " has shrunk its NCCL communicator"))).IgnoreError();
  return Adopt(shrinking->made, kWhat, end_ns);
}

}  // namespace tutti::nccl
