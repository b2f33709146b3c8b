// A handle to something asynchronous.
#ifndef TUTTI_WORK_H_
#define TUTTI_WORK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tutti {

class Operation;

// The result of a call that was submitted to a communicator. Movable, not copyable; any thread may use it, one at a
// time. Dropping it does not cancel the call: the buffers must stay valid until the call has ended. A Work may outlive
// its communicator, whose destruction ends every unfinished call with Aborted.
class Work {
 public:
  Work() = default;
  // A call that has ended already, such as one that was refused.
  explicit Work(absl::Status status) : status_(std::move(status)) {}
  // Adopts one reference to `operation`, of which it stands for one run.
  Work(Operation* operation, std::uint32_t run) : operation_(operation), run_(run) {}
  Work(Work&& other) noexcept { swap(other); }
  Work& operator=(Work&& other) noexcept {
    Work(std::move(other)).swap(*this);
    return *this;
  }
  ~Work();
  void swap(Work& other) noexcept {
    std::swap(operation_, other.operation_);
    std::swap(run_, other.run_);
    std::swap(status_, other.status_);
  }

  // True once the call has ended, well or not. Does not drive progress.
  bool done() const;

  // Waits until the call has ended and returns how. The waiting thread drives progress itself. The wait is bounded by
  // the call's own deadline; after an error it returns at once, and every later call on the communicator ends likewise.
  absl::Status Wait();

  // The same, but only until the output has its final values. What the call still has to do for its peers or for its
  // state then goes on by itself: input and state must stay as they are, and the output unchanged, until it has ended.
  absl::Status WaitForOutput();

  // When a call with CallOptions::timed ended, in nanoseconds of CLOCK_MONOTONIC; 0 before that and for other
  // calls. Of a bound plan: until it is started again.
  std::int64_t end_nanos() const;

  // What the call moves to and from other ranks, in bytes, as planned; 0 for one that was refused.
  std::int64_t wire_bytes() const;

  // Calls `callback` once, when the call has ended: on the thread that drives progress, or at once on this one when it
  // has ended already. The callback must not block or submit. At most one per Work. Allocates.
  void OnDone(std::function<void(const absl::Status&)> callback);

 private:
  Operation* operation_ = nullptr;
  std::uint32_t run_ = 0;
  absl::Status status_;
};

}  // namespace tutti

#endif  // TUTTI_WORK_H_
