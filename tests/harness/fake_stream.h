// A CUDA stream over host memory: an ordered queue of functions that a thread of its own performs one after the other.
#ifndef TUTTI_TESTS_HARNESS_FAKE_STREAM_H_
#define TUTTI_TESTS_HARNESS_FAKE_STREAM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "memory/cuda_runtime.h"

namespace tutti {

class FakeStream;

// What captured streams have recorded, to be performed by LaunchGraph of FakeCuda as often as one likes.
using FakeGraph = std::vector<std::function<void()>>;

// A capture under way: the streams that take part, and what they record. Thread-safe.
class FakeCapture {
 public:
  explicit FakeCapture(const FakeStream* origin) : id(++captures_), origin_(origin) {}

  const unsigned long long id;  // from 1

  void Record(const FakeStream* stream, std::function<void()> work);
  // The number of entries of `stream` so far, for Join.
  std::int64_t RecordedOn(const FakeStream* stream);
  // Another stream waits for the first `entries` of `stream`.
  void Join(const FakeStream* stream, std::int64_t entries);
  // What was recorded; ok: nothing of another stream than the origin was left that no stream waits for.
  FakeGraph End(bool* ok);

 private:
  struct Branch {
    std::int64_t recorded = 0;
    std::int64_t joined = 0;
  };

  inline static std::atomic<unsigned long long> captures_{0};

  const FakeStream* const origin_;
  Mutex mutex_;
  FakeGraph work_ TUTTI_GUARDED_BY(mutex_);
  std::map<const FakeStream*, Branch> branches_ TUTTI_GUARDED_BY(mutex_);
};

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

  // Between the two calls Push records. EndCapture returns what it was given, once.
  void BeginCapture(std::shared_ptr<FakeCapture> capture);
  void EndCapture();
  // The capture that the stream takes part in; null: none.
  std::shared_ptr<FakeCapture> capture();

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
  std::shared_ptr<FakeCapture> capture_ TUTTI_GUARDED_BY(mutex_);
};

// One record of a CUDA event: whether the stream of the record has come to it; or, in a capture, the place there.
class FakeRecord {
 public:
  std::shared_ptr<FakeCapture> capture;  // set before others see the record; null: the stream was not captured
  const FakeStream* stream = nullptr;    // of a record in a capture
  std::int64_t entries = 0;              // the entries of `stream` in the capture before the record

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
