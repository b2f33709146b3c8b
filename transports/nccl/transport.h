// The native transport over NCCL: blocking communicators, which put calls on their stream in the calling thread. Where
// NCCL may wait for another rank, a thread of its own waits there.
#ifndef TUTTI_TRANSPORTS_NCCL_TRANSPORT_H_
#define TUTTI_TRANSPORTS_NCCL_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "memory/cuda_runtime.h"
#include "transports/nccl/bounded.h"
#include "transports/nccl/connected.h"
#include "transports/nccl/enqueue.h"
#include "transports/nccl/library.h"
#include "tutti/native_transport.h"

namespace tutti::nccl {

// What one rank makes for a new communicator and gives to all its ranks, over a channel that no stranger reads.
// Unavailable when NCCL finds no network interface.
absl::StatusOr<UniqueId> NewUniqueId(const Library& nccl);

struct ConnectOptions {
  const Library* nccl = nullptr;      // outlives the transport, as a loaded library does
  const CudaRuntime* cuda = nullptr;  // outlives the transport
  int device = 0;                     // of this rank; ranks of one process have different devices
  Rank rank = 0;
  int size = 1;
  UniqueId id = {};
};

// Joins this rank to the communicator of `options.id`, of which all ranks call Connect. DeadlineExceeded when that has
// not come about by then; Unavailable and Internal as in NativeTransport.
absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(const ConnectOptions& options, absl::Time deadline);

class NcclTransport final : public NativeTransport {
 public:
  // Takes over `comm`, which is ready.
  NcclTransport(const Library& nccl, const CudaRuntime& cuda, int device, Rank rank, int size, Comm comm)
      : nccl_(nccl), cuda_(cuda), device_(device), rank_(rank), size_(size), comm_(comm) {}
  ~NcclTransport() override;

  absl::string_view name() const override { return "nccl"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }
  bool works_in_graphs() const override { return true; }
  absl::Status Supports(Collective collective, DType dtype, ReduceOp op) const override;
  absl::Status Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) override;
  absl::StatusOr<bool> Ready() override;
  absl::StatusOr<bool> Register(void* data, std::int64_t bytes) override;
  absl::Status Unregister(void* data) override;
  absl::StatusOr<std::unique_ptr<NativeTransport>> Split(std::optional<int> color, int key,
                                                         absl::Time deadline) override;
  absl::StatusOr<std::unique_ptr<NativeTransport>> Shrink(absl::Span<const Rank> dead, absl::Time deadline) override;
  absl::Status Finalize(absl::Time deadline) override;
  absl::Status Abort(const absl::Status& cause, absl::Time deadline) override;
  std::vector<Rank> Unfinished() override { return {}; }

 private:
  friend absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(const ConnectOptions& options, absl::Time deadline);

  // A group that a thread of its own gives to NCCL.
  struct Launch {
    std::vector<NativeCall> calls;
    GroupEnd end;
  };

  absl::Status Check(const NativeCall& call) const;
  // Whether NCCL may wait for peers in these calls.
  bool MayWait(absl::Span<const NativeCall> calls, CUstream_st* stream) const;
  // OK when nothing is under way in the communicator.
  absl::Status CheckReady(absl::string_view what);
  absl::Status NotReady(absl::string_view what) const;
  absl::Status Fail(absl::Status error);
  absl::Status NamesRank(const absl::Status& error) const;
  // Fails for every result but success and kInProgress.
  absl::Status FailUnlessGood(Result result, absl::string_view what);
  absl::Status FailUnlessGood(const GroupEnd& end, absl::Span<const NativeCall> calls);
  // Calls NCCL where the call may wait for other ranks, and returns when it is done, or at `end_ns` of MonotonicNanos.
  absl::Status Perform(absl::string_view what, std::int64_t end_ns, std::function<Result()> call);
  absl::StatusOr<std::unique_ptr<NativeTransport>> Divide(std::optional<int> color, int key, absl::string_view what,
                                                          std::int64_t end_ns);
  absl::StatusOr<std::unique_ptr<NativeTransport>> Adopt(Comm made, absl::string_view what, std::int64_t end_ns);
  // `written` is kept for as long as NCCL may write there.
  absl::Status AbortBy(const absl::Status& cause, std::int64_t end_ns, std::shared_ptr<void> written = nullptr);

  const Library& nccl_;
  const CudaRuntime& cuda_;
  const int device_;
  const Rank rank_;
  const int size_;
  Comm comm_;  // null once given up
  absl::Status failure_;
  Connected connected_;
  std::shared_ptr<CallApart> inside_;     // the call of NCCL that another thread makes; null: none
  std::shared_ptr<Launch> launch_;        // the group of `inside_`; null: there is none that Ready has not seen end
  std::map<void*, void*> registrations_;  // NCCL's handles, by address
};

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_TRANSPORT_H_
