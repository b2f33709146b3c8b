// A CUDA stream over host memory: an ordered queue of functions that a thread of its own performs one after the other.
#ifndef TUTTI_TESTS_HARNESS_FAKE_STREAM_H_
#define TUTTI_TESTS_HARNESS_FAKE_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "memory/cuda_runtime.h"

namespace tutti {

// What a captured stream has recorded, to be performed by LaunchGraph of FakeCuda as often as one likes.
using FakeGraph = std::vector<std::function<void()>>;

class FakeStream {
 public:
  // The thread ends when Close has been called and the queue is empty. The thread keeps the stream alive.
  static std::shared_ptr<FakeStream> Make(int device);

  int device() const { return device_; }

  // Queues `work`, or records it while the stream is captured. `work` may block: a collective waits for its peers.
  void Push(std::function<void()> work);
  bool idle();
  // Returns when all that has been pushed so far has been performed.
  void Drain();
  void Close();

  void BeginCapture();
  FakeGraph EndCapture();
  bool captures();

 private:
  explicit FakeStream(int device) : device_(device) {}
  void Run();

  const int device_;
  Mutex mutex_;
  Condition changed_;
  std::deque<std::function<void()>> queue_ TUTTI_GUARDED_BY(mutex_);
  std::int64_t pushed_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::int64_t performed_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
  bool captures_ TUTTI_GUARDED_BY(mutex_) = false;
  FakeGraph captured_ TUTTI_GUARDED_BY(mutex_);
};

// One record of a CUDA event: whether the stream of the record has come to it.
class FakeRecord {
 public:
  void Reach();
  bool reached();
  void Await();

 private:
  Mutex mutex_;
  Condition changed_;
  bool reached_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_STREAM_H_
