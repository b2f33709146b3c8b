#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
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

bool ForgetInChildren(int fd) {
  const std::lock_guard lock(Closed().mutex);
  std::vector<int>& descriptors = Closed().descriptors;
  const auto found = std::find(descriptors.begin(), descriptors.end(), fd);
  if (found == descriptors.end()) return false;
  descriptors.erase(found);
  return true;
}

}  // namespace tutti
