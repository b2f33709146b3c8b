// The thread on which the callbacks of calls run.
#ifndef TUTTI_ENGINE_CALLBACK_THREAD_H_
#define TUTTI_ENGINE_CALLBACK_THREAD_H_

#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"

namespace tutti {

// Runs functions one after the other, in the order in which they come, on a thread of its own that is started for the
// first. They may block, and hold up later ones. Thread-safe.
class CallbackThread {
 public:
  CallbackThread();
  ~CallbackThread();
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  // Starts the thread, which Run needs.
  void Start();
  // Does not block.
  void Run(std::function<void()> function);
  // Returns when everything has run, and ends the thread for good. Called by a function on the thread itself, it
  // returns at once; the rest runs after that function. The destructor does the same.
  void Stop();

 private:
  struct Queue;

  static void Main(const std::shared_ptr<Queue>& queue);

  const std::shared_ptr<Queue> queue_;
  Mutex mutex_;
  std::thread thread_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALLBACK_THREAD_H_
