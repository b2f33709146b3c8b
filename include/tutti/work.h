// Work: the handle to a call that a communicator runs asynchronously.
#ifndef TUTTI_WORK_H_
#define TUTTI_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"

namespace tutti {

class Call;

// The result of a call that was submitted to a communicator. Movable, not copyable; several threads may use it at the
// same time, but not while one of them moves or destroys it. Dropping a Work does not cancel the call: the buffers must
// stay valid until the call has ended. A Work may outlive its communicator, whose destruction ends every unfinished
// call with Aborted. A Work that was moved from is done, and its waits return FailedPrecondition.
class Work {
 public:
  Work() = default;  // of no call: done, with OK
  // Makes the Work of a call that has ended already, such as one that was refused.
  explicit Work(absl::Status status) : status_(std::move(status)) {}
  // Adopts one reference to `call`, for its run number `run`.
  Work(Call* call, std::uint32_t run) : call_(call), run_(run) {}
  Work(Work&& other) noexcept {
    swap(other);
    other.moved_from_ = true;
  }
  Work& operator=(Work&& other) noexcept {
    Work(std::move(other)).swap(*this);
    return *this;
  }
  ~Work();
  void swap(Work& other) noexcept {
    std::swap(call_, other.call_);
    std::swap(run_, other.run_);
    std::swap(moved_from_, other.moved_from_);
    std::swap(status_, other.status_);
  }

  // True once the call has ended, well or not. Does not drive progress.
  bool done() const;

  // Waits until the call has ended and returns its status. The waiting thread drives progress itself. The call's own
  // deadline bounds the wait; after an error of the communicator, Wait and every later call return at once.
  absl::Status Wait();

  // Waits like Wait(), but not beyond `deadline`: DeadlineExceeded when the call has not ended by then. The call goes
  // on, and can be waited for again.
  absl::Status Wait(absl::Time deadline);

  // Waits only until the output has its final values. What the call still has to do for its peers or for its state then
  // goes on by itself: input and state must stay as they are, and the output unchanged, until the call has ended.
  absl::Status WaitForOutput();

  // Lets what is enqueued on `stream`, a cudaStream_t, from now on wait for the end of this call, a call on the memory
  // of a GPU. Does not wait for that end itself: at most until the call is enqueued on the communicator's stream, which
  // it is already unless another thread is submitting, ranks meet for the first time, a hundred calls are on the
  // stream, or messages of the call still have to arrive on the host (staged, docs/gpus.md). FailedPrecondition for a
  // call on host memory, and where either the call or `stream` is part of a capture but not both. An error of a call
  // that has failed is that of Wait; a call that fails later ends its stream's wait with undefined results, and Wait
  // tells the error.
  absl::Status WaitOnStream(void* stream);

  // When a call with CallOptions::timed ended, in nanoseconds of CLOCK_MONOTONIC; 0 before its end and for other
  // calls. Of a bound plan, the time of its last run, until the plan is started again.
  std::int64_t end_nanos() const;

  // The rank of the communicator that sent the message of a Recv, once the Recv has ended OK; kAnySource before, and
  // for all other calls. The source of a bound Recv is known until that plan is started again.
  Rank source() const;

  // The bytes that the call moves to and from other ranks, as planned; 0 for a call that was refused, or has no plan
  // (Communicator::SendRecv). Of a call with two plans, the plan for buffers that peers can map is counted.
  std::int64_t wire_bytes() const;

  // Calls `callback` once, when the call has ended: on a thread of the communicator for callbacks, which holds no lock;
  // or at once on this thread, when the call has ended already. A callback may submit calls, wait for them, and drop
  // the last reference to the communicator. A Work may have several callbacks. Callbacks that were given before the
  // end, of one Work or of several, begin one after the other in the order in which they were given and calls ended;
  // but once a callback has run for a millisecond or so, because it blocks or because its thread has no processor, the
  // next one begins beside it on another thread. So a callback that blocks holds up no other, and data that several
  // callbacks use needs a lock. Where the system starts no more threads, OnDone waits for the call and calls `callback`
  // on this thread. In a forked child a call of the parent that has not ended is told as FailedPrecondition, at once.
  // A callback must not throw: the process ends (std::terminate), on whatever thread the callback runs. A null callback
  // does nothing. A call that its caller has promised to drive (CallOptions::caller_drives) needs no Wait any more.
  // Allocates.
  void OnDone(std::function<void(const absl::Status&)> callback);

  // Declares that somebody waits for this call elsewhere, for example for a future that a callback completes: until the
  // call has ended, the communicator's own thread drives it as eagerly as Wait would. Without AwaitElsewhere the
  // communicator's thread soon sleeps between looks for messages, since the core belongs to the program's computation.
  void AwaitElsewhere();

 private:
  absl::Status StatusWithoutCall() const;

  Call* call_ = nullptr;
  std::uint32_t run_ = 0;
  bool moved_from_ = false;
  absl::Status status_;
};

// A function that a program wants to run on threads that wait; any thread may call the function.
using WaitWatch = absl::Status (*)();

// Lets every thread that waits in this process without a deadline of its own (Work::Wait(), Work::WaitForOutput(), and
// calls of a Synchronizer) call `watch` about five times a second: for a language whose handlers of signals run on such
// a thread. With an error of `watch` the wait ends, and the communicator whose call is awaited is aborted with that
// error on all ranks, as by Communicator::Abort, even where the call has just ended: its peers may be in the next call
// already. Null takes the watch away. Thread-safe.
void SetWaitWatch(WaitWatch watch);

}  // namespace tutti

#endif  // TUTTI_WORK_H_
