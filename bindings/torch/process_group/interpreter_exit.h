// The end of Python's interpreter: process groups are left, and threads inside their calls do not return.
#ifndef TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_
#define TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace tutti::dist {

// Shuts down every group that lives, and returns when no thread of Tutti runs Python any more. Called once, by an exit
// handler on the main thread, without the GIL. A program that never calls destroy_process_group ends in order like
// this. Does nothing in a forked child.
void EndAllGroups();

// From here on EndAllGroups calls `shutdown`; until Untrack(group).
void Track(const void* group, std::function<void()> shutdown);
void Untrack(const void* group);

// Keeps `object` for good, in a forked child, where the threads do not exist for which its end would wait.
template <typename T>
void LeaveToParent(std::unique_ptr<T> object) {
  (void)object.release();
}

// The error of calls that are under way when the interpreter of `rank` ends.
absl::Status InterpreterEnds(int rank);

// Once the interpreter ends, a thread other than the main one must not return to Python, which would end the process
// with std::terminate: such a thread waits here for the end of the process. Threads inside a Callback go on.
void StayIfInterpreterEnds();

// Lives while a thread of Tutti runs callbacks of torch.
class Callback {
 public:
  Callback();
  ~Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_
