// A native transport performs whole collectives on the memory of devices, in the order of streams, as NCCL does, or
// moves messages there. It stands beside the Transport, which moves messages of the same ranks between hosts.
#ifndef TUTTI_NATIVE_TRANSPORT_H_
#define TUTTI_NATIVE_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/collective.h"
#include "tutti/dtype.h"

struct CUstream_st;  // NOLINT(readability-identifier-naming): CUDA's own handle of a stream

namespace tutti {

// One collective, Send or Recv, as one rank makes it. The fields mean what those of CollectiveSpec mean; equal or
// overlapping blocks of `src` and `dst` are in place as there.
struct NativeCall {
  Collective collective = Collective::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;
  Rank root = 0;      // the root, or the peer of send and recv
  double factor = 1;  // of kPremulSum: what this rank's elements are multiplied by
  const void* src = nullptr;
  void* dst = nullptr;
};

// The native collectives of one rank in one group of ranks. All ranks of the group make equal collectives in the same
// order. No function but those that take a deadline waits for another rank or for the device.
//
// The first error is sticky: every later call returns it. The caller then ends what lies on the streams, and may never
// end by itself, with Abort. Errors name the rank: Unavailable when a peer or its network is gone, Internal for errors
// of the device and of the transport itself.
//
// Threads: one thread at a time calls the functions of an object. Objects of one device may be called in different
// orders on different ranks (docs/gpus.md says what that means with NCCL).
class NativeTransport {
 public:
  // Aborts, and gives that two seconds, unless Finalize or Abort has been called.
  virtual ~NativeTransport() = default;

  virtual absl::string_view name() const = 0;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  // Whether Enqueue takes streams that are being captured into CUDA graphs.
  virtual bool works_in_graphs() const = 0;

  // Whether the call can be performed with the results that Tutti promises; Unimplemented says why not. The order of
  // summation is the transport's own, and 16-bit types may be rounded after each sum; all ranks get equal bits.
  virtual absl::Status Supports(Collective collective, DType dtype, ReduceOp op) const = 0;

  // Enqueues `calls` on `stream` as one group: they begin together and the stream goes on when all have ended, so a
  // Send and a Recv of one group never wait for each other, whereas those of two groups do as the two wait for their
  // peers. The memory stays the caller's to keep until the stream has passed the group. Errors that leave nothing
  // enqueued and are not sticky: Unimplemented (Supports), InvalidArgument for a field, FailedPrecondition while Ready
  // is false.
  virtual absl::Status Enqueue(absl::Span<const NativeCall> calls, CUstream_st* stream) = 0;

  // False while the last Enqueue has not put its work on the stream, which may wait for peers when ranks meet for the
  // first time: until Ready is true nothing else may be enqueued on that stream. Also finds errors of what runs, so the
  // caller asks every few milliseconds while a collective is under way.
  virtual absl::StatusOr<bool> Ready() = 0;

  // Tells the transport of memory that many calls will use, which may then be faster. Unregister comes before the
  // memory is freed; Finalize and Abort unregister what is left. Register returns false where the transport gains
  // nothing.
  virtual absl::StatusOr<bool> Register(void* data, std::int64_t bytes) = 0;
  virtual absl::Status Unregister(void* data) = 0;

  // Makes the groups of the ranks that give the same color, in the order of (key, rank); all ranks call Split, and one
  // without a color gets null. DeadlineExceeded when a rank has not come by then: this object is then aborted.
  virtual absl::StatusOr<std::unique_ptr<NativeTransport>> Split(std::optional<int> color, int key,
                                                                 absl::Time deadline) = 0;

  // Makes the group without `dead`, in the order of ranks. Only the other ranks call Shrink, all with the same list, on
  // which they have agreed before. What was enqueued here is aborted, and this object can then only be aborted.
  // Unimplemented where the transport is too old for it, FailedPrecondition while Ready is false; after that, and after
  // errors of a peer, the survivors make a new group from nothing.
  virtual absl::StatusOr<std::unique_ptr<NativeTransport>> Shrink(absl::Span<const Rank> dead, absl::Time deadline) = 0;

  // Waits until everything that was enqueued has ended on all ranks and gives all up. All ranks call Finalize. An error
  // of it is that of the wait; all is aborted then.
  virtual absl::Status Finalize(absl::Time deadline) = 0;

  // Ends what was enqueued, whose results are then undefined, and gives all up; later calls return `cause`, or the
  // error that came before it. Waits for no other rank. DeadlineExceeded when the transport's library does not return
  // by then: a thread is left behind in it.
  virtual absl::Status Abort(const absl::Status& cause, absl::Time deadline) = 0;

  // After Abort: the ranks of which messages are still under way in the Transport, whose memory this object must keep
  // until there are none. Moves these messages on; whoever destroys this object before leaves that memory behind.
  virtual std::vector<Rank> Unfinished() = 0;
};

// Makes native transports of one kind. Thread-safe.
class NativeTransportMaker {
 public:
  virtual ~NativeTransportMaker() = default;

  // An id for a new group, which one rank makes and gives to all ranks of the group over a channel that no stranger
  // reads.
  virtual absl::StatusOr<std::string> NewId() const = 0;
  // Joins this rank, which uses `device`, to the group of `id`, of which all ranks call Connect. DeadlineExceeded when
  // that has not come about by then; InvalidArgument when `id` is none.
  virtual absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(absl::string_view id, Rank rank, int size,
                                                                   int device, absl::Time deadline) const = 0;
};

// The maker for NCCL, which lives as long as the process; otherwise why there is none: no GPU, or no NCCL.
absl::StatusOr<const NativeTransportMaker*> NcclTransports();

}  // namespace tutti

#endif  // TUTTI_NATIVE_TRANSPORT_H_
