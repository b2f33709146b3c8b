// Operations on their way from callers to the engine's driver.
#ifndef TUTTI_ENGINE_SUBMISSION_QUEUE_H_
#define TUTTI_ENGINE_SUBMISSION_QUEUE_H_

#include <atomic>

#include "engine/operation.h"

namespace tutti {

// Any number of producers, lock-free; one consumer. Takes everything at once, oldest first; allocates nothing.
class SubmissionQueue {
 public:
  void Push(Operation* operation) {
    Operation* head = head_.load(std::memory_order_relaxed);
    do {
      operation->next.store(head, std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, operation, std::memory_order_seq_cst, std::memory_order_relaxed));
  }

  bool empty() const { return head_.load(std::memory_order_seq_cst) == nullptr; }

  // A list linked through Operation::next, in the order of submission; nullptr when empty.
  Operation* TakeAll() {
    Operation* newest = head_.exchange(nullptr, std::memory_order_acquire);
    Operation* oldest = nullptr;
    while (newest != nullptr) {
      Operation* const before = newest->next.load(std::memory_order_relaxed);
      newest->next.store(oldest, std::memory_order_relaxed);
      oldest = newest;
      newest = before;
    }
    return oldest;
  }

 private:
  std::atomic<Operation*> head_{nullptr};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_SUBMISSION_QUEUE_H_
