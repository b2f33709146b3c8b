// Messages of GPUs through pinned memory of the host.
#ifndef TUTTI_TRANSPORTS_STAGED_TRANSPORT_H_
#define TUTTI_TRANSPORTS_STAGED_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "memory/cuda_runtime.h"
#include "transports/staged/pipe.h"
#include "tutti/staged_transport.h"

namespace tutti::staged {

// A send is copied from the device to a slot, and sent as messages of the Transport once the copy has ended; what
// arrives in a slot is copied to the device. The copies of both directions have a stream each, beside the caller's: the
// copies begin when the caller's stream has come to the group, and the stream goes on after the last copy to the
// device. That copy is enqueued when its message has arrived, and not before, so everything on a stream ends by itself:
// a call of CUDA that waits for the device, made by the thread that would have to move the messages, cannot hang.
class StagedTransport final : public NativeTransport {
 public:
  explicit StagedTransport(StagedOptions options) : options_(std::move(options)) {}
  // Makes streams and events.
  absl::Status Open();
  ~StagedTransport() override;

  absl::string_view name() const override { return "staged"; }
  Rank rank() const override { return options_.rank; }
  int size() const override { return static_cast<int>(options_.peers.size()); }
  bool works_in_graphs() const override { return false; }
  absl::Status Supports(Collective collective, DType dtype, ReduceOp op) const override;
  absl::Status Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) override;
  absl::StatusOr<bool> Ready() override;
  absl::StatusOr<bool> Register(void* /*data*/, std::int64_t /*bytes*/) override { return false; }
  absl::Status Unregister(void* /*data*/) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<NativeTransport>> Split(std::optional<int> color, int key,
                                                         absl::Time deadline) override;
  absl::StatusOr<std::unique_ptr<NativeTransport>> Shrink(absl::Span<const Rank> dead, absl::Time deadline) override;
  absl::Status Finalize(absl::Time deadline) override;
  absl::Status Abort(const absl::Status& cause, absl::Time deadline) override;
  std::vector<Rank> Unfinished() override;

 private:
  absl::Status Check(const NativeCall& call) const;
  absl::StatusOr<Pipe*> PipeOf(const NativeCall& call);
  absl::Status Begin(absl::Span<const NativeCall> calls, CUstream_st* stream);
  // Lets the caller's stream wait for the copies to the device.
  absl::Status End();
  absl::Status Fail(absl::Status error);
  // What on `stream` has been enqueued so far, `waits` waits for.
  CudaError LetWait(CUstream_st* waits, CUstream_st* stream, CUevent_st* event) const;

  const StagedOptions options_;
  CUstream_st* from_device_ = nullptr;
  CUstream_st* to_device_ = nullptr;
  CUevent_st* begin_ = nullptr;
  CUevent_st* end_ = nullptr;
  // By rank of the group; null where none was needed so far.
  std::vector<std::unique_ptr<Pipe>> sends_;
  std::vector<std::unique_ptr<Pipe>> recvs_;
  std::vector<Pipe*> active_;      // with messages of the group that was enqueued last; empty: it has ended
  CUstream_st* stream_ = nullptr;  // of that group
  absl::Status failure_;
  bool aborted_ = false;
};

}  // namespace tutti::staged

#endif  // TUTTI_TRANSPORTS_STAGED_TRANSPORT_H_
