// Calls on their way from callers to the engine's driver.
#ifndef TUTTI_ENGINE_SUBMISSION_QUEUE_H_
#define TUTTI_ENGINE_SUBMISSION_QUEUE_H_

#include <atomic>

#include "engine/call.h"

namespace tutti {

// Any number of producers, lock-free; one consumer. Takes everything at once, oldest first; allocates nothing.
class SubmissionQueue {
 public:
  void Push(Call* call) {
    Call* head = head_.load(std::memory_order_relaxed);
    do {
      call->next_submitted.store(head, std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, call, std::memory_order_seq_cst, std::memory_order_relaxed));
  }

  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // A list linked through Call::next_submitted, in the order of submission; nullptr when empty.
  Call* TakeAll() {
    Call* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Call* oldest = nullptr;
    while (newest != nullptr) {
      Call* const before = newest->next_submitted.load(std::memory_order_relaxed);
      newest->next_submitted.store(oldest, std::memory_order_relaxed);
      oldest = newest;
      newest = before;
    }
    return oldest;
  }

 private:
  std::atomic<Call*> head_{nullptr};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_SUBMISSION_QUEUE_H_
