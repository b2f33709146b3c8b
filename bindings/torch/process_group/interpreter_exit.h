// The end of Python's interpreter: process groups are left, and threads inside their calls do not return.
#ifndef TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_
#define TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_

#include <c10/util/Exception.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti::dist {

// Shuts down every group that lives, and returns when no thread of Tutti runs Python any more. Called once, by an exit
// handler on the main thread, without the GIL. A program that never calls destroy_process_group ends in order like
// this. Does nothing in a forked child.
void EndAllGroups();

// Something of this process that exchanges with other ranks. Any thread may call the functions.
class Tracked {
 public:
  virtual ~Tracked() = default;
  // Leaves the other ranks.
  virtual void End() = 0;
  // Ends all calls on all ranks with an error that says "rank R " and `reason`; nothing after End, and in a forked
  // child.
  virtual void Abort(const std::string& reason) = 0;
};

// From here on EndAllGroups ends `group`, and AbortAllGroups aborts it; until Untrack(owner).
void Track(const void* owner, std::shared_ptr<Tracked> group);
void Untrack(const void* owner);

// Aborts every group that lives: this rank has failed, and goes on in none of them. Thread-safe.
void AbortAllGroups(const std::string& reason);

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

// Holds a T that ends with the interpreter, or with its owner; a thread that is in a call at that moment keeps the T
// until the call has ended. T has a member `communicator`, which the calls use. Thread-safe.
template <typename T>
class EndsWithInterpreter : public Tracked {
 public:
  // `what` names the T in error texts.
  EndsWithInterpreter(std::shared_ptr<T> live, const char* what) : live_(std::move(live)), what_(what) {}

  // Throws when the interpreter ends, and in a forked child.
  std::shared_ptr<T> Get() {
    StayIfInterpreterEnds();
    TORCH_CHECK_VALUE(process_ == getpid(), "tutti: the ", what_,
                      " belongs to the process that made it, not to a forked child");
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, live_ != nullptr, "tutti: the interpreter ends: no more exchanges");
    return live_;
  }

  // The T, as far as it lives in this process: null once the interpreter ends, and in a forked child.
  std::shared_ptr<T> Peek() {
    if (process_ != getpid()) return nullptr;
    const std::lock_guard lock(mutex_);
    return live_;
  }

  void End() override {
    // A forked child leaves the T to its parent: the threads do not exist for which the end would wait, and one of them
    // may have held the mutex.
    if (process_ != getpid()) return (void)new std::shared_ptr<T>(live_);
    std::shared_ptr<T> ended;
    const std::lock_guard lock(mutex_);
    ended.swap(live_);
    // A thread in a call would hold the group for as long as its peers do not make the call.
    if (ended.use_count() > 1) ended->communicator->Abort(InterpreterEnds(ended->communicator->rank()));
  }

  void Abort(const std::string& reason) override {
    if (process_ != getpid()) return;
    const std::lock_guard lock(mutex_);
    if (live_ == nullptr) return;
    auto& communicator = *live_->communicator;
    communicator.Abort(absl::AbortedError(absl::StrCat("rank ", communicator.rank(), " ", reason)));
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<T> live_;
  const char* const what_;
  const pid_t process_ = getpid();
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_INTERPRETER_EXIT_H_
