#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace tutti {
namespace {

// The list of descriptors is never destroyed: static objects that are destroyed later may still close descriptors. The
// lock of the list is a std::mutex, because the handlers of fork lock and unlock it in different functions.
struct ClosedInChildren {
  std::mutex mutex;
  std::vector<int> descriptors;
};

ClosedInChildren& Closed() {
  static ClosedInChildren& closed = *[] {
    // The lock is held during fork, so that the child's copy of the list is whole.
    ::pthread_atfork([] { Closed().mutex.lock(); }, [] { Closed().mutex.unlock(); },
                     [] {
                       for (const int fd : Closed().descriptors) ::close(fd);
                       Closed().descriptors.clear();
                       Closed().mutex.unlock();
                     });
    return new ClosedInChildren;
  }();
  return closed;
}

}  // namespace

void CloseInChildren(int fd) {
  const std::lock_guard lock(Closed().mutex);
  Closed().descriptors.push_back(fd);
}

void ForgetInChildren(int fd) {
  const std::lock_guard lock(Closed().mutex);
  std::erase(Closed().descriptors, fd);
}

void CloseAndForget(int fd) {
  const std::lock_guard lock(Closed().mutex);
  std::erase(Closed().descriptors, fd);
  ::close(fd);
}

}  // namespace tutti
