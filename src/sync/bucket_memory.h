// The memory in which a synchronizer keeps gradients, snapshots and states, and in which weights lie, and the work on
// that memory beside the exchange itself.
#ifndef TUTTI_SYNC_BUCKET_MEMORY_H_
#define TUTTI_SYNC_BUCKET_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/adam.h"
#include "kernels/combine.h"
#include "tutti/buffer.h"
#include "tutti/communicator.h"
#include "tutti/dtype.h"

namespace tutti {

// For comparisons between ranks: "of the host".
inline const char* Name(MemoryKind kind) { return kind == MemoryKind::kDevice ? "of a GPU" : "of the host"; }

// Memory of the host, where every function has done its work when it returns; or of a GPU, where the functions without
// a Status enqueue their work and return. What cannot be enqueued, or transferred, aborts the communicator, whose
// status then tells the error. Memory that functions are given is of this kind, unless they say otherwise.
class BucketMemory {
 public:
  // `communicator` must outlive the result. FailedPrecondition for memory of a GPU where the communicator has none.
  static absl::StatusOr<std::unique_ptr<BucketMemory>> Create(Communicator& communicator, MemoryKind kind);
  virtual ~BucketMemory() = default;
  BucketMemory(const BucketMemory&) = delete;
  BucketMemory& operator=(const BucketMemory&) = delete;

  virtual MemoryKind kind() const = 0;
  // Aborts `other` as well where the communicator is aborted; null: no other one. Before anything is enqueued.
  virtual void AbortToo(Communicator* /*other*/) {}
  // To be called by a thread of the library's own, when it begins.
  virtual void BeginThread() const {}
  bool on_device() const { return kind() == MemoryKind::kDevice; }
  // OK when `data` is memory of this kind, and of this communicator's GPU. Null is.
  virtual absl::Status Check(const void* data) const = 0;
  virtual absl::StatusOr<Buffer> AllocateZeroed(std::int64_t bytes) = 0;

  // The stream on which the synchronizer's one thread enqueues, and on which its user computes; null on the host.
  virtual void* stream() const { return nullptr; }
  // The new stream waits for the former one.
  virtual void SetStream(void* /*stream*/) {}
  // A stream of this class alone, on which nothing is enqueued but waits for other streams; null on the host.
  virtual void* side_stream() const { return nullptr; }
  // Lets what is enqueued on `waiting` from now on wait for what is on `stream` now. Any thread.
  virtual void LetWait(void* /*waiting*/, void* /*stream*/) {}

  // The functions that enqueue, on stream() where they name none. Ranges do not overlap, but for an exact alias in
  // Combine; a range of zero bytes may lie anywhere.
  virtual void Copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual void Zero(void* data, std::int64_t bytes) = 0;
  virtual void Convert(DType to_type, void* to, DType from_type, const void* from, std::int64_t count) = 0;
  // kernels/combine.h, with Results::kAll.
  virtual void Combine(DType dtype, void* to, absl::Span<const void* const> terms, const Coefficient* coefficients,
                       std::int64_t count) = 0;
  // kernels/adam.h.
  virtual void BlendIntoMomentum(void* stream, DType dtype, void* gradient, const void* weights, const float* m,
                                 std::int64_t count, const kernels::AdamFactors& factors) = 0;
  virtual void AdamStep(DType dtype, void* weights, const void* gradient, float* m, float* v, std::int64_t count,
                        const kernels::AdamFactors& factors) = 0;
  virtual void FrozenAdamStep(DType dtype, void* weights, const void* momentum, float* m, const float* v,
                              std::int64_t count, const kernels::AdamFactors& factors) = 0;

  // Copies between this memory and the host's, after what is on stream(), and waits for the end. `from` and `to` may
  // both be memory of the host.
  virtual absl::Status Transfer(void* to, const void* from, std::int64_t bytes) = 0;

 protected:
  BucketMemory() = default;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_BUCKET_MEMORY_H_
