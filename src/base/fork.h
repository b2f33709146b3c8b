// Descriptors whose end tells others that this process has ended (connections, locks), and what fork() does to them: a
// child would keep such descriptors open after the death of its parent, and nobody would notice that death.
#ifndef TUTTI_BASE_FORK_H_
#define TUTTI_BASE_FORK_H_

#include <pthread.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "tutti/dtype.h"

namespace tutti {

// Tells whether this process is the one that made the object. In a forked child the threads of its parent do not exist,
// and locks are as they were at the moment of the fork: the child must leave alone what uses threads or locks.
// is_this() costs one load.
class MakerProcess {
 public:
  MakerProcess() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
    (void)registered;  // fails only without memory
  }

  bool is_this() const { return forks.load(std::memory_order_relaxed) == made_; }

 private:
  inline static std::atomic<int> forks{0};  // the number of forks between this process and the first one
  int made_ = forks.load(std::memory_order_relaxed);
};

// Makes every child that this process forks close `fd` before fork() returns in the child, until ForgetInChildren or
// CloseAndForget is called. Programs that the process starts are kept from descriptors by close-on-exec, which the
// owner of `fd` sets. The functions are thread-safe.
void CloseInChildren(int fd);
// Takes CloseInChildren back.
void ForgetInChildren(int fd);
// Closes `fd` and takes CloseInChildren back, with no moment between at which a child would keep `fd`.
void CloseAndForget(int fd);

// A descriptor that no child keeps; closed on destruction in the process that made it. In a child the descriptor is
// closed already, and its number may belong to another file of the child.
class UnsharedFd {
 public:
  UnsharedFd() = default;
  explicit UnsharedFd(UniqueFd fd) : fd_(std::move(fd)) {
    if (fd_.valid()) CloseInChildren(fd_.get());
  }
  UnsharedFd(UnsharedFd&&) noexcept = default;
  UnsharedFd& operator=(UnsharedFd&& other) noexcept {
    if (this == &other) return *this;
    Reset();
    fd_ = std::move(other.fd_);
    maker_ = other.maker_;
    return *this;
  }
  ~UnsharedFd() { Reset(); }

  int get() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }

 private:
  void Reset() {
    const int fd = fd_.Release();
    if (fd >= 0 && maker_.is_this()) CloseAndForget(fd);
  }

  UniqueFd fd_;
  MakerProcess maker_;
};

// The error of a call on the communicator of `rank` in a forked child.
inline absl::Status NotInForkedChild(Rank rank) {
  return absl::FailedPreconditionError(
      absl::StrCat("the communicator of rank ", rank, " belongs to the process that made it, not to a forked child"));
}

// Keeps `object` for good, in a forked child: destroying the object would wait for threads that do not exist there.
template <typename T>
void LeaveToParent(std::unique_ptr<T> object) {
  static std::vector<std::unique_ptr<T>>& left = *new std::vector<std::unique_ptr<T>>;
  left.push_back(std::move(object));
}

}  // namespace tutti

#endif  // TUTTI_BASE_FORK_H_
