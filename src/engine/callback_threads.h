// The threads on which the callbacks of calls run.
#ifndef TUTTI_ENGINE_CALLBACK_THREADS_H_
#define TUTTI_ENGINE_CALLBACK_THREADS_H_

#include <functional>
#include <memory>

namespace tutti {

// Runs functions in the order in which they come, on a thread of its own. A function may block, for example until a
// later one has run: once a function has run for a millisecond, or has said that it may block, the later functions run
// on another thread, beside it. A function whose thread gets no processor for a millisecond counts as one that blocks,
// so no two functions may rely on running one after the other. Thread-safe.
class CallbackThreads {
 public:
  CallbackThreads();
  ~CallbackThreads();
  CallbackThreads(const CallbackThreads&) = delete;
  CallbackThreads& operator=(const CallbackThreads&) = delete;

  // Starts the first thread, which Run needs before Stop. False when the system starts no more threads.
  bool Start();
  // Queues `function` and returns at once. Once Stop has ended the threads, `function` runs on the calling thread.
  void Run(std::function<void()> function);
  // Says, on a thread of any CallbackThreads, that the function which runs there may block; does nothing elsewhere.
  static void MayBlock();
  // Ends the threads for good and returns when every function has run. When a function calls Stop, Stop returns at
  // once, and the other functions run all the same. The destructor calls Stop.
  void Stop();

 private:
  class Crew;

  const std::shared_ptr<Crew> crew_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CALLBACK_THREADS_H_
