// The thread on which the callbacks of calls run.
#ifndef TUTTI_ENGINE_CALLBACK_THREAD_H_
#define TUTTI_ENGINE_CALLBACK_THREAD_H_

#include <functional>
#include <memory>
#include <thread>

#include "base/mutex.h"

namespace tutti {

// Runs functions one after the other, in the order in which they come, on a thread of its own. A function may block,
// and then holds up the later ones. Thread-safe.
class CallbackThread {
 public:
  CallbackThread();
  ~CallbackThread();
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;

  // Starts the thread, which Run needs.
  void Start();
  // Queues `function` and returns at once.
  void Run(std::function<void()> function);
  // Ends the thread for good and returns when every function has run. When a function on the thread itself calls Stop,
  // Stop returns at once, and the other functions run after that one. The destructor calls Stop.
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
