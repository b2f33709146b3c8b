// The options of one call of a communicator.
#ifndef TUTTI_CALL_OPTIONS_H_
#define TUTTI_CALL_OPTIONS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tutti {

struct Schedule;

// The largest CallOptions::tag.
inline constexpr std::int32_t kMaxTag = (1 << 28) - 1;

struct CallOptions {
  // Which schedule serves the call, equal on all ranks; nullptr, on all ranks: the one that
  // CommunicatorOptions::schedules names for the collective, and where it names none the selector decides;
  // &kSelectorsChoice (schedule.h): the selector decides in any case.
  const Schedule* schedule = nullptr;
  // How long the call may wait for its peers, at most; zero: as long as the communicator's timeout. The clock starts
  // when the call has its place among the calls; the clock of a Recv, which may be posted long before its message is
  // due, starts no earlier than somebody waits for the Recv (Work::Wait, OnDone or AwaitElsewhere), unless the Recv is
  // on the memory of a GPU. Ranks may give different timeouts.
  absl::Duration timeout = absl::ZeroDuration();
  // The tag of a Send or Recv, in 0…kMaxTag: a message meets a receive of the same tag. 0 for all other calls. The tag
  // belongs to the run and not to the plan: a bound Send may have another tag each time.
  std::int32_t tag = 0;
  // The caller promises to Wait soon, so that the engine thread need not be woken: saves a context switch. The call may
  // make no progress before Wait, OnDone or AwaitElsewhere.
  bool caller_drives = false;
  // Other work needs the cores more than the caller needs the result: a thread that waits for this call sleeps until
  // something arrives, and does not poll.
  bool background = false;
  // Note when the call ends, for Work::end_nanos().
  bool timed = false;
  // The number of this run for codecs that round at random: runs of a bound plan with equal numbers draw the same
  // random numbers, runs with different numbers draw independent ones. Give every run its own number: rounding is right
  // on average only over many runs.
  std::uint64_t draw = 0;
  // What ReduceOp::kPremulSum multiplies this rank's elements by. The factor belongs to the run and not to the plan:
  // ranks may give different factors, and every call another one. 1 for all other operators. The products are rounded
  // to the dtype (16-bit types: from fp32) before they are summed.
  double factor = 1;
  // The CUDA stream (cudaStream_t) on which the input of a call on the memory of a GPU is computed: the call begins
  // once what was enqueued there before the call has ended. Null: the default stream. A call on a stream that is
  // being captured becomes part of the CUDA graph (docs/gpus.md). InvalidArgument for a stream of another GPU than the
  // communicator's; the call counts for no rank then. Not used for calls on host memory. A call whose buffers are all
  // null, which this rank makes without any element, is one on the memory of the GPU where a stream is given, for the
  // default stream as cudaStreamLegacy, and otherwise one on host memory.
  void* stream = nullptr;
  // The owner of the call and its round, as the caller numbers them; owners from 2^31 on are those of synchronizers.
  // Collectives that meet with different numbers end with an error: on one node with InvalidArgument that names both;
  // between nodes, where their messages meet no receives, with DeadlineExceeded. Sends and Recvs are not compared. 0:
  // not given.
  std::uint32_t owner = 0;
  std::uint64_t round = 0;
};

}  // namespace tutti

#endif  // TUTTI_CALL_OPTIONS_H_
